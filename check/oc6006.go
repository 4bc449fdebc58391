package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6006 = Rule{ID: "OC6006", Title: "todo", Severity: Warning, decide: decideOC6006}

func decideOC6006(r *Run) Outcome {
	p := r.Manifest.Precision.Autocast
	if p == nil || *p != "float16" {
		return r.lacks("nothing is computed in FP16, as far as the record says")
	}
	if r.scaled() || r.has(step.ScalerCreate, nil) {
		return notApplicable("the loss is scaled")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		i, zero, all := s.Underflowed()
		if i < 0 {
			continue
		}
		judged = true
		if zero*100 < all {
			continue
		}
		hits = append(hits, hit{
			story: s, event: i, attempt: s.Events[i].Attempt, certainty: Observed,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("Gradients are computed in FP16 without a loss scale: %d of %d elements (%.1f %%) are zero or lie in the last bits of FP16.", zero, all, 100*float64(zero)/float64(all)),
					[]Evidence{{"elements that are zero or subnormal", zero}, {"elements", all}}
			},
		})
	}
	return decided(hits, judged)
}
