package check

import "fmt"

var oc6001 = Rule{ID: "OC6001", Title: "todo", Severity: Advice, decide: decideOC6001}

// Rates of clipping are told of runs that are long enough to have one.
const (
	enoughClips = 50
	nearlyAll   = 0.95
)

func decideOC6001(r *Run) Outcome {
	return r.clipRate(func(active, all int) (string, bool) {
		return fmt.Sprintf("The clip limited %d of %d steps: nearly every step has the same norm, and the learning rate alone sets its size.", active, all),
			float64(active) >= nearlyAll*float64(all)
	})
}
