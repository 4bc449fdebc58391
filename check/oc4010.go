package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4010 = Rule{ID: "OC4010", Title: "todo", Severity: Error, decide: decideOC4010}

func decideOC4010(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		left, scale, known := leftOut(c)
		judged = judged || known
		if left.Empty() {
			return
		}
		hits = append(hits, hit{
			story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("%s still carried the loss scale %s when the optimizer stepped; its other parameters had been unscaled.", tensors(s.Universe.Members(left)), num(scale)),
					[]Evidence{{"tensors left out", left.Len()}, {"loss scale", scale}}
			},
		})
	})
	return decided(hits, judged)
}

// leftOut are the parameters of a step that carry the scale beside others that
// were unscaled.
func leftOut(c *step.Consumption) (left step.Set, scale float64, known bool) {
	unscaled := false
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.State != step.Filled || p.Claimed {
			continue
		}
		known = known || p.Unit().Known()
		if s, ok := p.Unit().IsScale(); ok {
			left, scale = left.Or(p.On), s
		}
		unscaled = unscaled || p.Unit().IsOne()
	}
	if !unscaled {
		return nil, 0, known
	}
	return left, scale, known
}
