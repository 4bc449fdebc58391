package evidence

import (
	"fmt"

	"ordercheck/step"
)

// kinds of numbers that are not finite, by parameter.
type bad struct{ inf, nan step.Set }

// badAt is what an attempt's gradients of some parameters hold that is not
// finite, after its backwards.
func (s *Story) badAt(attempt step.Maybe[int], owned step.Set) (b bad, looked bool) {
	for _, n := range s.at(attempt) {
		e := s.Events[n]
		if e.Kind != step.Backward && e.Kind != step.Step {
			continue
		}
		// A backward leaves masters as they were: the last attempt's.
		grads, ok := s.Book.Of(e.After, "grad")
		on := owned.Or(s.Universe.sources(owned)).Minus(s.Universe.copies)
		if e.Kind == step.Step {
			grads, ok = s.Book.Of(e.Before, "grad")
			on = owned
		}
		if !ok {
			continue
		}
		looked = true
		for _, i := range on.Members() {
			st, ok := s.Book.Stats(grads[s.Universe.Names[i]])
			if !ok {
				continue
			}
			if st.NaN > 0 {
				b.nan = b.nan.Or(step.SetOf(i))
			}
			if st.NonFinite > st.NaN {
				b.inf = b.inf.Or(step.SetOf(i))
			}
		}
	}
	return b, looked
}

// Unchecked says what the check of a step did not look at: the step was applied
// on gradients that are not finite in some tensors, while others, whenever they
// were not finite, made the step skip; or that held NaN, while Inf made it skip.
// It also reads the covers of checks that were recorded. nil: nothing is known
// to be unchecked.
func (s *Story) Unchecked(c *step.Consumption) (missed []string, why string) {
	owned, known := s.Universe.Owned(c.Optimizer)
	if !known || c.Outcome != step.Applied {
		return nil, ""
	}
	if left := s.uncovered(c, owned); !left.Empty() {
		return s.Universe.Members(left), "the finiteness checks of this step cover other tensors only"
	}
	here, looked := s.badAt(c.Attempt, owned)
	all := here.inf.Or(here.nan)
	if !looked || all.Empty() {
		return nil, ""
	}
	skips := 0
	alwaysOther, alwaysInf := true, true
	for attempt := range s.skippedByHand(c.Optimizer) {
		b, looked := s.badAt(step.Some(attempt), owned)
		if both := b.inf.Or(b.nan); looked && !both.Empty() {
			skips++
			alwaysOther = alwaysOther && !both.Minus(all).Empty()
			alwaysInf = alwaysInf && !b.inf.Empty()
		}
	}
	switch {
	case skips == 0:
		return nil, ""
	case alwaysOther && all.Len() < owned.Len():
		return s.Universe.Members(all), fmt.Sprintf("gradients of %d tensors are not finite and the step was applied", all.Len())
	case alwaysInf && here.inf.Empty():
		return s.Universe.Members(all), "gradients are NaN, none is infinite, and the step was applied"
	}
	return nil, ""
}

func (s *Story) findHandSkips(optimizer string) map[int]bool {
	out := map[int]bool{}
	for _, e := range s.Events {
		if e.Kind == step.Backward && e.Attempt.Known {
			out[e.Attempt.Value] = true
		}
	}
	for _, c := range s.Machine.Consumptions {
		if c.Optimizer != optimizer || !c.Attempt.Known {
			continue
		}
		if s.Events[c.Event].Via == "scaler" {
			return nil
		}
		if c.Outcome != step.Skipped {
			delete(out, c.Attempt.Value)
		}
	}
	return out
}

// uncovered are the parameters that no recorded check of a step's window covers,
// where checks with covers are the only verdicts.
func (s *Story) uncovered(c *step.Consumption, owned step.Set) step.Set {
	var covered step.Set
	checks := 0
	for _, i := range s.at(c.Attempt) {
		e := s.Events[i]
		if i > c.Event {
			break
		}
		switch e.Kind {
		case step.Unscale, step.Step:
			if e.FoundInf.Known {
				return nil
			}
		case step.Check:
			if !e.Covers.Known {
				return nil
			}
			checks++
			covered = covered.Or(s.Universe.set(e.Covers.Value))
		}
	}
	if checks == 0 {
		return nil
	}
	var filled step.Set
	for _, p := range c.Parts {
		if p.State == step.Filled {
			filled = filled.Or(p.On)
		}
	}
	return owned.And(filled).Minus(covered)
}
