package check

import (
	"fmt"

	"ordercheck/step"
)

var oc2004 = Rule{ID: "OC2004", Title: "todo", Severity: Warning, decide: decideOC2004}

func decideOC2004(r *Run) Outcome {
	if !r.has(step.Schedule, nil) && !r.has(step.EMA, nil) {
		return r.lacks("no schedule and no average is recorded")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		skipped := s.SkippedAttempts()
		judged = judged || len(skipped) > 0
		calls, idle, rising := 0, 0, s.RatesRise()
		for i, e := range s.Events {
			if e.Kind != step.Schedule && e.Kind != step.EMA || !e.Attempt.Known {
				continue
			}
			calls++
			if !skipped[e.Attempt.Value] {
				continue
			}
			idle++
			what := "the learning-rate schedule"
			if e.Kind == step.EMA {
				what = "an average of the parameters"
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Observed,
				grave: e.Kind == step.EMA || r.Manifest.Declared.Schedule == "per_update",
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The step was skipped, and %s moved all the same.", what),
						[]Evidence{{"calls on skipped steps", idle}, {"calls", calls}}
				},
			})
		}
		if rising && idle*10 > calls {
			for i := range hits {
				hits[i].grave = true
			}
		}
	}
	if !judged {
		return r.lacks("no step was skipped")
	}
	return decided(hits, judged)
}
