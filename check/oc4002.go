package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4002 = Rule{ID: "OC4002", Title: "todo", Severity: Error, decide: decideOC4002}

func decideOC4002(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	hits := r.errorHits("OC4002", "Gradients were to be unscaled at each micro-batch of one step.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	if len(hits) == 0 && !r.accumulates() {
		return notApplicable("one backward a step: no micro-batches")
	}
	out := r.breachRule("OC4002", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) (string, []Evidence) {
		return "The partial sum was unscaled and a later micro-batch, which carries the scale, was added to it: the two have no common unit, and the next division makes the first one vanish.",
			[]Evidence{{"micro-batches in the sum", len(p.Terms)}}
	})
	if len(hits) > 0 {
		return faults(append(told(hits), out.Findings...))
	}
	return out
}
