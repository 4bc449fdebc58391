package check

import "fmt"

var oc6002 = Rule{ID: "OC6002", Title: "todo", Severity: Advice, decide: decideOC6002}

func decideOC6002(r *Run) Outcome {
	return r.clipRate(func(active, all int) (string, bool) {
		return fmt.Sprintf("The clip limited none of %d steps: its threshold lies above every norm that came.", all), active == 0
	})
}
