package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2013 = Rule{ID: "OC2013", Title: "todo", Severity: Error, decide: decideOC2013}

func decideOC2013(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.State != step.Filled {
				continue
			}
			for _, w := range p.Words {
				m := s.Seen(w.Op.Event, w.Op.On, p.On)
				hidden := 0
				for _, change := range m {
					hidden += change.Hidden
				}
				judged = judged || len(m) > 0
				if hidden == 0 || m.After().Zero() || w.Op.Kind == step.ZeroGrad || w.Op.Kind == step.Backward || p.Verdict.Taken && p.Verdict.NonFinite {
					continue
				}
				hits = append(hits, hit{
					story: s, event: w.Op.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						what := "Code without a call"
						if e := s.Events[w.Op.Event]; !e.Inferred {
							what = "The " + e.Op
						}
						return fmt.Sprintf("%s turned %d gradients that were not finite into numbers before anything had looked: the overflow was not seen and the step was taken.", what, hidden),
							[]Evidence{{"elements not finite before", m.Before().NonFinite}, {"after", m.After().NonFinite}, {"largest after", m.After().Max}}
					},
				})
			}
		}
	})
	return decided(hits, judged)
}
