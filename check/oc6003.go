package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6003 = Rule{ID: "OC6003", Title: "todo", Severity: Warning, decide: decideOC6003}

func decideOC6003(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	p := r.Manifest.Precision.Autocast
	known := p != nil || r.Manifest.PrecisionGiven
	half := p != nil && *p == "float16"
	for _, s := range r.Stories {
		for _, d := range s.Dtypes {
			half = half || d == "float16"
			known = known || d != ""
		}
		half = half || s.OnHalfGrid()
	}
	if half {
		return passed()
	}
	if !known {
		return noData("")
	}
	var hits []hit
	for _, s := range r.Stories {
		if i := s.First(step.ScaleLoss); i >= 0 {
			hits = append(hits, hit{story: s, event: i, certainty: Observed, tell: func() (string, []Evidence) {
				what := "float32"
				if p != nil {
					what = *p
				}
				return fmt.Sprintf("The loss is scaled although nothing is computed in FP16 (autocast: %s): the scaler costs time, and a skipped step nothing but data.", what), nil
			}})
		}
	}
	return decided(hits, true)
}
