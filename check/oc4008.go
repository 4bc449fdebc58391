package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4008 = Rule{ID: "OC4008", Title: "todo", Severity: Error, decide: decideOC4008}

func decideOC4008(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Reduce, func(e *step.Event) bool { return e.What == "gradient" }) {
		return noData("")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied || s.Sharded() {
			return
		}
		never, twice, known := s.Combined(c)
		judged = judged || known
		if !known || !never && !twice {
			return
		}
		hits = append(hits, hit{
			story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
			tell: func() (string, []Evidence) {
				if never {
					return "The last micro-batch's gradients were never combined over the ranks: each rank stepped on its own.", nil
				}
				return "Gradients that had been summed over the ranks were summed again together with the next micro-batch: the first ones count once for each rank.", nil
			},
		})
	})
	return decided(hits, judged)
}
