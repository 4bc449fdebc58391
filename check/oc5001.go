package check

import "fmt"

var oc5001 = Rule{ID: "OC5001", Title: "todo", Severity: Warning, decide: decideOC5001}

func decideOC5001(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedNorms() {
			logged++
			if !l.Scaled {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged norm %s is that of the scaled gradients: the true norm is %s.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"true norm", l.True}, {"loss scale", l.Scale}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no norm is logged")
	}
	return decided(hits, true)
}
