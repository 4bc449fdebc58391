package check

import (
	"fmt"
	"math"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4004 = Rule{ID: "OC4004", Title: "todo", Severity: Error, decide: decideOC4004}

func decideOC4004(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	norms := evidence.JoinedNorms(r.Stories)
	var hits []hit
	for _, n := range norms {
		if math.Abs(n.Used/n.True-1) < 1e-3 {
			continue
		}
		hits = append(hits, hit{
			story: n.Story, event: n.Event, attempt: n.Story.Events[n.Event].Attempt, optimizer: n.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				why := "is not that of the gradients that are stepped"
				switch {
				case n.Sharded && math.Abs(n.Used/n.Local-1) < 1e-3:
					why = "is that of this rank's part alone"
				case !n.Sharded && math.Abs(n.Used/n.True-math.Sqrt(float64(len(r.Stories)))) < 1e-3:
					why = "counts the same gradients once for every rank"
				}
				return fmt.Sprintf("The norm that the clip used, %s, %s: theirs is %s, so that the clip is %s times too strong.", num(n.Used), why, num(n.True), num(n.Used/n.True)),
					[]Evidence{{"norm that the clip used", n.Used}, {"norm over the whole cover", n.True}, {"norm of this rank's gradients", n.Local}, {"ratio", n.Used / n.True}}
			},
		})
	}
	return decided(hits, len(norms) > 0)
}
