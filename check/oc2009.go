package check

import (
	"math"

	"ordercheck/step"
)

var oc2009 = Rule{ID: "OC2009", Title: "todo", Severity: Error, decide: decideOC2009}

// leastLosses is how often a loss has to be not finite before it is said that
// the loss itself is at fault: a single batch may overflow in the forward pass
// and be skipped rightly.
const leastLosses = 3

func decideOC2009(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		var found []hit
		for i, e := range s.Events {
			if e.Kind != step.ScaleLoss || !e.Loss.Known {
				continue
			}
			judged = true
			if math.IsNaN(e.Loss.Value) || math.IsInf(e.Loss.Value, 0) {
				found = append(found, hit{
					story: s, event: i, attempt: e.Attempt, certainty: Observed,
					tell: func() (string, []Evidence) {
						return "The loss was not finite before it was multiplied by the scale: the step is skipped at any scale, and the scale falls for nothing.",
							[]Evidence{{"loss", e.Loss.Value}, {"loss scale", e.Scale.Value}}
					},
				})
			}
		}
		if len(found) >= leastLosses {
			hits = append(hits, found...)
		}
	}
	return decided(hits, judged)
}
