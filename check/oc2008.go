package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2008 = Rule{ID: "OC2008", Title: "todo", Severity: Warning, decide: decideOC2008}

func decideOC2008(r *Run) Outcome {
	if len(r.Stories) != 1 || r.Manifest.WorldSize > 1 {
		return noData("gradients of all ranks before the skipped step")
	}
	var hits []hit
	skips, looked := 0, 0
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Skipped || s.Events[c.Event].Via != "scaler" {
			return
		}
		skips++
		finite, known := s.AllFiniteAt(c.Attempt)
		if !known {
			return
		}
		looked++
		if finite {
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return "The step was skipped although every gradient of every optimizer was finite.", nil
				},
			})
		}
	})
	switch {
	case skips == 0:
		return r.lacks("no scaler skipped a step")
	case looked == 0:
		return noData("")
	}
	return decided(hits, true)
}
