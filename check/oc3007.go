package check

import (
	"fmt"
	"math"
)

var oc3007 = Rule{ID: "OC3007", Title: "todo", Severity: Error, decide: decideOC3007}

func decideOC3007(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		history := s.ScaleHistory()
		judged = judged || len(history) > 0
		highest, moved, stuck := 0.0, false, 0
		for i, a := range history {
			highest = max(highest, a.Scale)
			moved = moved || i > 0 && a.Scale != history[i-1].Scale
		}
		for i, a := range history {
			infinite := math.IsInf(a.Scale, 1)
			if a.Skipped && a.Scale == highest && moved {
				stuck++
			} else {
				stuck = 0
			}
			if !infinite && !(stuck > floorSkips && i+1 < len(history) && history[i+1].Scale == a.Scale) {
				continue
			}
			hits = append(hits, hit{
				story: s, event: a.Event, attempt: a.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					if infinite {
						return "The scale reached infinity: every gradient is, and no step will be taken again.", []Evidence{{"loss scale", a.Scale}}
					}
					return fmt.Sprintf("The scale stays at its cap, %s, while gradients overflow.", num(a.Scale)), []Evidence{{"loss scale", a.Scale}, {"skipped steps in a row", stuck}}
				},
			})
		}
	}
	return decided(hits, judged)
}
