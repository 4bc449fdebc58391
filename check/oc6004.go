package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6004 = Rule{ID: "OC6004", Title: "todo", Severity: Advice, decide: decideOC6004}

func decideOC6004(r *Run) Outcome {
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for _, u := range s.NeverClipped() {
			judged = true
			if len(u.Names) == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: u.Event, attempt: s.Events[u.Event].Attempt, optimizer: u.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("%d of the %d parameters that this optimizer steps are in no clip: %s.", len(u.Names), u.All, tensors(u.Names)),
						[]Evidence{{"parameters never clipped", len(u.Names)}, {"parameters", u.All}}
				},
			})
		}
	}
	return decided(hits, judged)
}
