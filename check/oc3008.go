package check

import "ordercheck/step"

var oc3008 = Rule{ID: "OC3008", Title: "todo", Severity: Error, decide: decideOC3008}

func decideOC3008(r *Run) Outcome {
	hits := r.errorHits("OC3008", "The scale was to be updated without a finiteness verdict since the last update.")
	if len(hits) == 0 && (!r.scaled() || !r.has(step.UpdateScale, nil)) {
		return r.lacks("no call updates the scale")
	}
	judged, gaps := false, false
	for _, s := range r.Stories {
		gaps = gaps || s.Gaps
		blind, seeing := s.BlindUpdates()
		judged = judged || seeing > 0
		if seeing == 0 {
			continue // verdicts were not recorded
		}
		for _, i := range blind {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The scale was updated although no verdict had been taken since the last update: an overflow of this step would count as a clean one.",
						[]Evidence{{"scale before", e.Previous.Value}, {"scale after", e.Scale.Value}}
				},
			})
		}
	}
	if len(hits) == 0 && gaps {
		return noData("")
	}
	return decided(hits, judged)
}
