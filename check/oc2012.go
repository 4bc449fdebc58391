package check

import "ordercheck/step"

var oc2012 = Rule{ID: "OC2012", Title: "todo", Severity: Warning, decide: decideOC2012}

func decideOC2012(r *Run) Outcome {
	if !r.has(step.Schedule, func(e *step.Event) bool { return e.Attempt.Known }) {
		return r.lacks("no schedule is recorded")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		still, moved := s.UnscheduledSteps()
		judged = judged || moved > 0
		for _, i := range still {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The step was applied and its schedule did not move, as it did at the other steps: the scale grew here, and a script that compares scales by inequality takes that for a skip.",
						[]Evidence{{"applied steps without their schedule", len(still)}, {"with it", moved}}
				},
			})
		}
	}
	return decided(hits, judged)
}
