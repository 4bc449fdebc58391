package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2010 = Rule{ID: "OC2010", Title: "todo", Severity: Error, decide: decideOC2010}

func decideOC2010(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.State != step.Filled {
				continue
			}
			verdict, reduce := -1, -1
			for _, w := range p.Words {
				switch {
				case w.Op.Kind == step.Unscale || w.Op.Kind == step.Check:
					if w.Op.FoundInf.Known && w.Op.Event < c.Event {
						verdict = w.Op.Event
					}
				case w.Op.Kind == step.Reduce && verdict >= 0:
					reduce = w.Op.Event
				}
			}
			judged = judged || verdict >= 0
			if verdict < 0 || reduce < verdict || s.JoinedBetween(verdict, c.Event) {
				continue
			}
			hits = append(hits, hit{
				story: s, event: verdict, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("This rank's verdict was taken before the ranks' gradients were combined%s, and the verdicts were not joined: another rank's overflow reaches gradients that were found finite.", atLine(s, reduce)), nil
				},
			})
		}
	})
	return decided(hits, judged)
}
