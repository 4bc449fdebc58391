package check

import (
	"maps"
	"slices"

	"ordercheck/step"
)

var oc3002 = Rule{ID: "OC3002", Title: "todo", Severity: Error, decide: decideOC3002}

func decideOC3002(r *Run) Outcome {
	hits := r.errorHits("OC3002", "The scale had not been updated since the last verdict.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	judged := false
	for _, s := range r.Stories {
		for _, id := range slices.Sorted(maps.Keys(r.Manifest.Scalers)) {
			if r.Manifest.Scalers[id].Policy != "torch.GradScaler" {
				continue // the script's own, or a constant
			}
			still, fell := s.Unmoved(id)
			judged = judged || fell > 0
			if fell > 0 || s.Gaps {
				continue
			}
			for _, i := range still {
				e := s.Events[i]
				hits = append(hits, hit{
					story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						return "An overflow was found here, and the next loss was multiplied by the same scale: nothing had updated it.",
							[]Evidence{{"overflows after which the scale stayed", len(still)}}
					},
				})
			}
		}
	}
	if len(hits) == 0 && !judged && !r.has(step.UpdateScale, nil) {
		return r.lacks("no overflow was followed by another loss of its scaler")
	}
	return decided(hits, judged)
}
