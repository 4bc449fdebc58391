package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4003 = Rule{ID: "OC4003", Title: "todo", Severity: Error, decide: decideOC4003}

func decideOC4003(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	if !r.has(step.Reduce, func(e *step.Event) bool { return e.What == "gradient" }) {
		return noData("")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) { judged = true })
	r.eachBreach("OC4003", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		clip := -1
		for _, w := range p.Words {
			if w.Op.Kind == step.Clip && !w.Op.Inert && w.Op.Event < b.Event {
				clip = w.Op.Event
			}
		}
		now := active(s, p, clip)
		h := hit{story: s, event: clip, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven, idle: !step.Is(now, true)}
		e := s.Events[clip]
		h.tell = func() (string, []Evidence) {
			return "Each rank clipped its own gradients and then they were combined: the mean of clipped parts is not the clipped mean, and ranks with large gradients lose weight.",
				[]Evidence{{"norm of this rank's gradients", e.Norm.Value}, {"threshold", e.Threshold.Value}}
		}
		hits = append(hits, h)
	})
	return decided(hits, judged)
}
