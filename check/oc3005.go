package check

import (
	"fmt"
	"math"
	"slices"

	"ordercheck/evidence"
)

var oc3005 = Rule{ID: "OC3005", Title: "todo", Severity: Error, decide: decideOC3005}

const (
	longestRun = 20 // skips in a row that a burst may take while the scale falls at each
	floorSkips = 5  // skips at one scale, the lowest, before it is said to be stuck there
)

func decideOC3005(r *Run) Outcome {
	if !r.scaled() && !r.maybeScaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		history := s.ScaleHistory()
		judged = judged || len(history) > 0
		run, falls := 0, true
		lowest := math.Inf(1)
		if s.MaybeHand && !allSkipped(history) {
			continue // whatever multiplies the losses, some step was taken
		}
		moved := false
		for i, a := range history {
			lowest = min(lowest, a.Scale)
			moved = moved || i > 0 && a.Scale != history[i-1].Scale
		}
		stuck := 0
		for i, a := range history {
			say := func(why string) {
				hits = append(hits, hit{
					story: s, event: a.Event, attempt: a.Attempt, certainty: Observed,
					tell: func() (string, []Evidence) {
						return why, []Evidence{{"loss scale", a.Scale}, {"skipped steps in a row", run}}
					},
				})
			}
			if !a.Skipped {
				run, falls, stuck = 0, true, 0
			} else {
				run++
				falls = falls && i+1 < len(history) && history[i+1].Scale < a.Scale
				if a.Scale == lowest {
					stuck++
				}
			}
			switch {
			case a.Scale < 1 && history[0].Scale >= 1:
				say(fmt.Sprintf("The scale has fallen to %s: below 1 it makes gradients smaller, and whatever overflows is not mended by it.", num(a.Scale)))
			case run > longestRun && !falls:
				say(fmt.Sprintf("%d steps in a row were skipped and the scale, %s, did not fall at each of them.", run, num(a.Scale)))
			case moved && stuck > floorSkips && i+1 < len(history) && history[i+1].Scale == a.Scale:
				say(fmt.Sprintf("The scale is at its floor, %s, and gradients still overflow.", num(a.Scale)))
			}
		}
	}
	return decided(hits, judged)
}

func allSkipped(history []evidence.ScaleAt) bool {
	return !slices.ContainsFunc(history, func(a evidence.ScaleAt) bool { return !a.Skipped })
}
