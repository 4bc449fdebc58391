package evidence

import "ordercheck/step"

// What happened at one attempt, or over all of them.

// SteppedAt reports whether an optimizer stepped at an attempt.
func (s *Story) SteppedAt(attempt step.Maybe[int]) bool {
	for _, c := range s.turns(attempt) {
		if c.Outcome == step.Applied {
			return true
		}
	}
	return false
}

// SkippedAttempts are the attempts at which every optimizer that had its turn
// skipped.
func (s *Story) SkippedAttempts() map[int]bool {
	out, applied := map[int]bool{}, map[int]bool{}
	for _, c := range s.Machine.Consumptions {
		if !c.Attempt.Known {
			continue
		}
		if c.Outcome == step.Skipped {
			out[c.Attempt.Value] = true
		} else {
			applied[c.Attempt.Value] = true
		}
	}
	for a := range applied {
		delete(out, a)
	}
	for _, k := range s.Skips() { // the script's own
		if k.Attempt.Known && !applied[k.Attempt.Value] {
			out[k.Attempt.Value] = true
		}
	}
	return out
}

// OverflowedAt reports whether gradients of these parameters were seen not to be
// finite at an attempt.
func (s *Story) OverflowedAt(attempt step.Maybe[int], on step.Set) bool {
	for _, i := range s.at(attempt) {
		e := s.Events[i]
		if step.Is(e.FoundInf, true) {
			return true
		}
		if grads, ok := s.Book.Of(e.After, "grad"); ok && e.Kind == step.Backward && s.count(grads, on.Or(s.Universe.sources(on)), i).NonFinite {
			return true
		}
		if e.Kind == step.Clip && e.Norm.Known && !isFinite(e.Norm.Value) {
			return true
		}
	}
	return false
}

// AllFiniteAt says whether the gradients of all parameters were finite after
// every backward of an attempt; known is false where nobody looked.
func (s *Story) AllFiniteAt(attempt step.Maybe[int]) (finite, known bool) {
	finite = true
	for _, i := range s.at(attempt) {
		e := s.Events[i]
		if e.Kind != step.Backward && e.Kind != step.Unscale && e.Kind != step.Reduce {
			continue
		}
		grads, ok := s.Book.Of(e.After, "grad")
		if !ok && e.Kind == step.Backward {
			return false, false
		}
		if ok {
			known = true
			finite = finite && !s.count(grads, s.Universe.All(), i).NonFinite
		}
	}
	return finite, known
}

// FirstStep is the event of an optimizer's first step, -1 without one.
func (s *Story) FirstStep(optimizer string) int {
	for i, e := range s.Events {
		if e.Kind == step.Step && e.Optimizer == optimizer {
			return i
		}
	}
	return -1
}

// First is the first event of a kind, -1 without one.
func (s *Story) First(kind step.Kind) int {
	for i, e := range s.Events {
		if e.Kind == kind && !e.Inferred {
			return i
		}
	}
	return -1
}

// StepCount reads Adam's step count of an optimizer: the last one seen, or the
// one after its first step.
func (s *Story) StepCount(optimizer string, last bool) (count float64, ok bool) {
	on, _ := s.Universe.Owned(optimizer)
	for _, e := range s.Events {
		if e.Kind != step.Step || e.Optimizer != optimizer {
			continue
		}
		c, _ := s.Book.Of(e.After, "step")
		for _, name := range sortedKeys(c) {
			if v, read := s.Book.Vector(c[name]); read && len(v) == 1 && on.Has(s.Universe.add(name)) {
				count, ok = v[0], true
				break
			}
		}
		if !last {
			return count, ok
		}
	}
	return count, ok
}

// RatesRise reports whether the learning rate rises from its first value: a
// warm-up, which calls on skipped steps shorten.
func (s *Story) RatesRise() bool {
	var rates []float64
	for _, e := range s.Events {
		if e.Kind == step.Step && len(e.LR) > 0 {
			rates = append(rates, e.LR[0])
		}
	}
	return len(rates) > 1 && rates[len(rates)/2] > rates[0]
}

// UnscheduledSteps are the applied steps at which the schedule did not move
// although the scale grew just there, if it moved at every other applied step.
func (s *Story) UnscheduledSteps() (still []int, moved int) {
	scheduled, grew, skipped := map[int]bool{}, map[int]bool{}, s.SkippedAttempts()
	for _, e := range s.Events {
		if !e.Attempt.Known {
			continue
		}
		switch e.Kind {
		case step.Schedule:
			scheduled[e.Attempt.Value] = true
		case step.UpdateScale:
			if e.Scale.Known && e.Previous.Known && e.Scale.Value > e.Previous.Value {
				grew[e.Attempt.Value] = true
			}
		}
	}
	for _, c := range s.Machine.Consumptions {
		a := c.Attempt
		if c.Outcome != step.Applied || !a.Known || skipped[a.Value] {
			continue
		}
		switch {
		case scheduled[a.Value]:
			moved++
		case grew[a.Value]:
			still = append(still, c.Event)
		default:
			return nil, moved
		}
	}
	if moved == 0 {
		return nil, 0
	}
	return still, moved
}
