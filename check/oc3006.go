package check

import (
	"fmt"

	"ordercheck/step"
)

var oc3006 = Rule{ID: "OC3006", Title: "todo", Severity: Error, decide: decideOC3006}

func decideOC3006(r *Run) Outcome {
	if !r.scaled() || !r.has(step.ScalerCreate, nil) {
		return r.lacks("no scaler is made in this record")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		losses := s.LostScalers()
		judged = true
		for _, l := range losses {
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: l.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("A new scaler took the place of one that had come to %s, and began at its initial scale %s: the state of the first one was not loaded.", num(l.Before), num(l.After)),
						[]Evidence{{"scale before", l.Before}, {"scale after", l.After}}
				},
			})
		}
	}
	return decided(hits, judged)
}
