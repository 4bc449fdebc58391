package check

import "fmt"

var oc6005 = Rule{ID: "OC6005", Title: "todo", Severity: Advice, decide: decideOC6005}

func decideOC6005(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		sums, looked := s.SummedOverRanks()
		judged = judged || looked
		for _, i := range sums {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The ranks' gradients were summed and nothing divided the sum by %d: a threshold and a learning rate meant for a mean are off by that factor.", len(r.Stories)),
						[]Evidence{{"ranks", len(r.Stories)}}
				},
			})
		}
	}
	return decided(hits, judged)
}
