package check

import "fmt"

var oc5003 = Rule{ID: "OC5003", Title: "todo", Severity: Warning, decide: decideOC5003}

func decideOC5003(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedLosses() {
			logged++
			if !l.OtherScale {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged loss %s is the scaled loss divided by another step's scale: the loss was %s.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"loss", l.True}, {"ratio", l.Value / l.True}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no loss is logged")
	}
	return decided(hits, true)
}
