package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4007 = Rule{ID: "OC4007", Title: "todo", Severity: Error, decide: decideOC4007}

func decideOC4007(r *Run) Outcome {
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i, e := range s.Events {
			if e.Kind != step.Clip && e.Kind != step.Norm || !e.Covers.Known || e.Kind == step.Clip && !clips(e) {
				continue
			}
			judged = true
			twice := s.CountedTwice(e)
			if len(twice) == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: s.OwnerOf(s.Universe.Set(e.Covers.Value)), certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The %s was handed %s twice: its square counts twice in the norm, and a clip multiplies it twice.", e.Op, tensors(twice)),
						[]Evidence{{"tensors that were handed", len(e.Covers.Value)}, {"of them twice", tensors(twice)}}
				},
			})
		}
	}
	r.eachBreach("OC1002", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		all, _ := s.Universe.Owned(c.Optimizer)
		if !s.Events[b.Event].Inferred || p.On.Len() >= all.Len() || !s.OnceElsewhere(c, p, b.Event) {
			return
		}
		hits = append(hits, hit{
			story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				m, ev := tellOC1002(s, p, b)
				return "The loop that unscales meets " + tensors(s.Universe.Members(p.On)) + " twice. " + m, ev
			},
		})
	})
	return decided(hits, judged || r.scaled())
}
