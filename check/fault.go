package check

import (
	"strings"

	"ordercheck/evidence"
	"ordercheck/step"
)

// stopped is an attempt that the framework itself ended, and the rule that the
// calls before it broke.
type stopped struct {
	story     *evidence.Story
	event     int
	rule      string
	optimizer string
}

// errorRules reads the error events of a story: the text says what the framework
// refused, the calls before it say why. PyTorch 2.15, torch/amp/grad_scaler.py.
func errorRules(s *evidence.Story) (out []stopped) {
	for i := range s.Events {
		e := s.Events[i]
		if e.Kind != step.Fail {
			continue
		}
		has := func(text string) bool { return strings.Contains(e.Text, text) }
		before := func(k step.Kind) int { return lastBefore(s, i, k, e.Optimizer) }
		since := func(k step.Kind, from int) bool { return before(k) > from }
		add := func(rules ...string) {
			for _, r := range rules {
				out = append(out, stopped{s, i, r, e.Optimizer})
			}
		}
		switch {
		case has("unscale_() has already been called on this optimizer since the last update"):
			switch first := before(step.Unscale); {
			case first < 0 || s.Gaps:
			case since(step.ZeroGrad, first) || s.Events[first].Attempt != e.Attempt:
				add("OC3002")
			case since(step.Backward, first):
				add("OC4002")
			default:
				add("OC1002")
			}
		case has("unscale_() is being called after step()"):
			stepped := before(step.Step)
			unscale, update := secondLast(s, stepped, step.Unscale, e.Optimizer), before(step.UpdateScale)
			switch {
			case s.Gaps || stepped < 0:
			case update > unscale && update < stepped:
				add("OC3004")
			case update < 0:
				add("OC3002")
			}
		case has("step() has already been called since the last update"):
			switch stepped := before(step.Step); {
			case s.Gaps || stepped < 0:
			case since(step.Backward, stepped):
				add("OC3002")
			case s.Events[stepped].Attempt == e.Attempt:
				add("OC1012")
			}
		case has("_scale is None"):
			add("OC1002")
		case has("No inf checks were recorded prior to update"):
			switch {
			case s.Gaps || before(step.Backward) < 0: // the calls that would tell are missing
				continue
			case !since(step.Backward, before(step.UpdateScale)):
				add("OC3003")
			case bypassed(s, i):
				out = append(out, stopped{s, i, "OC1003", s.Events[lastBefore(s, i, step.Step, "")].Optimizer})
			default:
				add("OC3004")
			}
			add("OC3008")
		case has("No inf checks were recorded for this optimizer"):
			add("OC1009")
		case has("Attempting to unscale FP16 gradients"):
			add("OC1011")
		}
	}
	return out
}

// lastBefore is the index of the last event of a kind before i, -1 without one.
// Calls of other optimizers are passed over.
func lastBefore(s *evidence.Story, i int, k step.Kind, optimizer string) int {
	for i--; i >= 0; i-- {
		e := s.Events[i]
		if e.Kind == k && !e.Inferred && (e.Optimizer == "" || optimizer == "" || e.Optimizer == optimizer) {
			return i
		}
	}
	return -1
}

// secondLast is the unscale before the implicit one of the step at i, or that
// one if it is alone.
func secondLast(s *evidence.Story, i int, k step.Kind, optimizer string) int {
	last := lastBefore(s, i, k, optimizer)
	if last >= 0 && s.Events[last].Implicit {
		if first := lastBefore(s, last, k, optimizer); first >= 0 {
			return first
		}
	}
	return last
}

// bypassed reports whether an optimizer stepped without its scaler since the
// last backward before i.
func bypassed(s *evidence.Story, i int) bool {
	last := lastBefore(s, i, step.Step, "")
	return last > lastBefore(s, i, step.Backward, "") && s.Events[last].Via == "optimizer"
}

// errorHits are the hits of a rule among the framework's own errors.
func (r *Run) errorHits(rule, says string) (hits []hit) {
	for _, s := range r.Stories {
		for _, f := range errorRules(s) {
			if f.rule != rule {
				continue
			}
			e := s.Events[f.event]
			hits = append(hits, hit{
				story: s, event: f.event, attempt: e.Attempt, optimizer: f.optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					if strings.Contains(e.Text, "_scale is None") {
						says = "No loss was handed to scaler.scale(), so there is no scale to divide by: call scaler.scale(loss).backward()."
					}
					return says + " The framework stopped here.", []Evidence{{"error", e.ErrorType + ": " + e.Text}}
				},
			})
		}
	}
	return hits
}
