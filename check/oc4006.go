package check

import (
	"fmt"

	"ordercheck/evidence"
)

var oc4006 = Rule{ID: "OC4006", Title: "todo", Severity: Error, decide: decideOC4006}

func decideOC4006(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, d := range evidence.ScalesByRank(r.Stories) {
		judged = true
		if d.Same {
			continue
		}
		hits = append(hits, hit{
			story: r.Stories[d.Rank], event: d.Event, attempt: d.Attempt, certainty: Proven,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("This rank's loss was multiplied by %s and that of rank %d by %s: the ranks' gradients are combined in different units.", num(d.Scale), r.Stories[0].Rank, num(d.First)),
					[]Evidence{{"scale of this rank", d.Scale}, {fmt.Sprintf("scale of rank %d", r.Stories[0].Rank), d.First}}
			},
		})
	}
	return decided(hits, judged)
}
