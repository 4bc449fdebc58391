package check

import (
	"fmt"

	"ordercheck/step"
)

var oc2005 = Rule{ID: "OC2005", Title: "todo", Severity: Error, decide: decideOC2005}

func decideOC2005(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			if c.Outcome != step.Applied {
				judged = judged || c.Outcome == step.Skipped
				continue
			}
			missed, why := s.Unchecked(c)
			if missed == nil {
				continue
			}
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("Steps are skipped when other gradients overflow, but not here: %s. The check does not look at %s.", why, tensors(missed)),
						[]Evidence{{"tensors that are not checked", tensors(missed)}}
				},
			})
		}
	}
	if len(hits) == 0 && !judged && !r.guarded() {
		return noData("")
	}
	return decided(hits, true)
}
