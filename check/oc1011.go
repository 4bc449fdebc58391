package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1011 = Rule{ID: "OC1011", Title: "todo", Severity: Error, decide: decideOC1011}

func decideOC1011(r *Run) Outcome {
	hits := r.errorHits("OC1011", "The scaler was to unscale gradients that are stored in FP16.")
	judged := false
	for _, s := range r.Stories {
		for i, e := range s.Events {
			if e.Kind != step.Unscale || e.Inferred {
				continue
			}
			judged = true
			lost, stored := s.Flushed(i)
			if lost == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("Gradients stored in FP16 were unscaled in place: %d of %d elements that were not zero became zero.", lost, stored),
						[]Evidence{{"elements flushed to zero", lost}, {"elements that were not zero", stored}}
				},
			})
		}
	}
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	return decided(hits, judged)
}
