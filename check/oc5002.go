package check

import "fmt"

var oc5002 = Rule{ID: "OC5002", Title: "todo", Severity: Warning, decide: decideOC5002}

func decideOC5002(r *Run) Outcome {
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedNorms() {
			logged++
			if !l.Clipped {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged norm %s is the one after the clip; before it the norm was %s, and that is what tells a spike.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"norm before the clip", l.True}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no norm is logged")
	}
	return decided(hits, true)
}
