package check

import (
	"fmt"

	"ordercheck/fp16"
)

var oc1013 = Rule{ID: "OC1013", Title: "todo", Severity: Warning, decide: decideOC1013}

func decideOC1013(r *Run) Outcome {
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for _, id := range s.Universe.Optimizers() {
			o := r.Manifest.Optimizers[id]
			on, _ := s.Universe.Owned(id)
			if on.Empty() || len(s.Events) == 0 {
				continue
			}
			half := true
			for _, name := range s.Universe.Members(on) {
				half = half && s.Dtypes[name] == "float16"
			}
			judged = judged || s.Dtypes[s.Universe.Members(on)[0]] != ""
			eps := o.Settings.Eps
			if !half || eps == nil || *eps == 0 || fp16.HalfFromFloat64(float64(*eps)) != 0 {
				continue
			}
			first := s.FirstStep(id)
			if first < 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: first, attempt: s.Events[first].Attempt, optimizer: id, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The optimizer's parameters and state are FP16, where eps = %s is zero: a second moment of zero divides by zero.", num(float64(*eps))),
						[]Evidence{{"eps", float64(*eps)}, {"smallest FP16 number", fp16.SmallestNonzeroHalf}}
				},
			})
		}
	}
	return decided(hits, judged)
}
