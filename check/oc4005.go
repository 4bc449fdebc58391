package check

import (
	"fmt"

	"ordercheck/evidence"
)

var oc4005 = Rule{ID: "OC4005", Title: "todo", Severity: Error, decide: decideOC4005}

func decideOC4005(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	var hits []hit
	judged := false
	for _, at := range evidence.Together(r.Stories) {
		judged = true
		applied, skipped := at.Split()
		if len(applied) == 0 || len(skipped) == 0 {
			continue
		}
		c := at.On[skipped[0]]
		hits = append(hits, hit{
			story: r.Stories[skipped[0]], event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("%d ranks applied this step and %d skipped it: their parameters part here.", len(applied), len(skipped)),
					[]Evidence{{"ranks that applied", len(applied)}, {"ranks that skipped", len(skipped)}}
			},
		})
	}
	return decided(hits, judged)
}
