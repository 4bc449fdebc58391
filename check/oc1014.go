package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1014 = Rule{ID: "OC1014", Title: "todo", Severity: Error, decide: decideOC1014}

func decideOC1014(r *Run) Outcome {
	declared := r.Manifest.Declared.Clip != nil
	if !r.has(step.Clip, clips) && !declared {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			if c.Outcome != step.Applied {
				continue
			}
			clip, on, why := s.MissedBy(c)
			judged = true
			if clip < 0 {
				continue
			}
			e := s.Events[clip]
			hits = append(hits, hit{
				story: s, event: clip, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					ev := []Evidence{{"threshold", e.Threshold.Value}, {"norm that the clip saw", e.Norm.Value}}
					if st := s.NormOf(s.Events[c.Event].Before, on); st.N > 0 {
						ev = append(ev, Evidence{"norm of the gradients that were stepped", st.Norm()})
					}
					return why, ev
				},
			})
		}
		if declared && !r.has(step.Clip, nil) && r.MaxNorm.Known {
			for i := range s.Machine.Consumptions {
				c := &s.Machine.Consumptions[i]
				on, _ := s.Universe.Owned(c.Optimizer)
				st := s.NormOf(s.Events[c.Event].Before, on)
				if c.Outcome != step.Applied || st.N == 0 || st.NonFinite > 0 || st.Norm() <= r.MaxNorm.Value*(1+1e-3) || !s.TrueAt(c) {
					continue
				}
				hits = append(hits, hit{
					story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						return fmt.Sprintf("A clip at %s is declared and none ran: gradients with norm %s were stepped.", num(r.MaxNorm.Value), num(st.Norm())),
							[]Evidence{{"declared threshold", r.MaxNorm.Value}, {"norm that was stepped", st.Norm()}}
					},
				})
			}
		}
	}
	return decided(hits, judged)
}
