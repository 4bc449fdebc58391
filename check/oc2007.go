package check

import (
	"fmt"
	"math"

	"ordercheck/step"
)

var oc2007 = Rule{ID: "OC2007", Title: "todo", Severity: Error, decide: decideOC2007}

func decideOC2007(r *Run) Outcome {
	if !r.has(step.Clip, nil) && !r.has(step.Norm, nil) {
		return r.lacks("no norm is taken")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i, e := range s.Events {
			if e.Kind != step.Clip || !e.Norm.Known {
				continue
			}
			st, format := s.NormInput(i)
			judged = judged || st.N > 0 || !math.IsInf(e.Norm.Value, 0)
			if st.N == 0 || st.NonFinite > 0 || !math.IsInf(e.Norm.Value, 1) || format != "F16" {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: s.OwnerOf(s.Universe.Set(e.Covers.Value)), certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The norm of these FP16 gradients is itself FP16 and overflowed: every gradient is finite and their norm is %s, beyond 65504.", num(st.Norm())),
						[]Evidence{{"norm that the clip got", e.Norm.Value}, {"norm of the gradients", st.Norm()}, {"largest gradient", st.Max}}
				},
			})
		}
	}
	return decided(hits, judged)
}
