package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1012 = Rule{ID: "OC1012", Title: "todo", Severity: Error, decide: decideOC1012}

func decideOC1012(r *Run) Outcome {
	hits := r.errorHits("OC1012", "The optimizer was to step a second time on gradients that it had already consumed.")
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		judged = true
		for _, b := range c.Broken {
			if b.Rule != "OC1012" {
				continue
			}
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The optimizer stepped on gradients that it had consumed before, and no backward had filled them again.", nil
				},
			})
		}
	})
	return decided(hits, judged)
}
