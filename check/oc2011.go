package check

import "fmt"

var oc2011 = Rule{ID: "OC2011", Title: "todo", Severity: Error, decide: decideOC2011}

func decideOC2011(r *Run) Outcome {
	resumed := false
	for _, o := range r.Manifest.Optimizers {
		resumed = resumed || o.Continues != nil
	}
	if !resumed {
		return r.lacks("no optimizer takes another one's place")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for id, o := range r.Manifest.Optimizers {
			if o.Continues == nil {
				continue
			}
			before, ok1 := s.StepCount(*o.Continues, true)
			after, ok2 := s.StepCount(id, false)
			if !ok1 || !ok2 {
				continue
			}
			judged = true
			if before < 2 || after > 1 {
				continue
			}
			first := s.FirstStep(id)
			hits = append(hits, hit{
				story: s, event: first, attempt: s.Events[first].Attempt, optimizer: id, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The optimizer took the place of one that had made %s steps, and began at step %s: its moments and its step count were lost.", num(before), num(after)),
						[]Evidence{{"step count before", before}, {"step count after its first step", after}}
				},
			})
		}
	}
	return decided(hits, judged)
}
