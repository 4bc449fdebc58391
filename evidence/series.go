package evidence

import (
	"maps"
	"math"
	"strings"

	"ordercheck/record"
	"ordercheck/step"
)

// Reconstruct makes events of tensor files that stand in the order in which they
// were made, where no call was recorded. Neighbours whose gradients are one
// another's multiple belong to one window; a division by a large power of two
// is an unscale, another shrinking a clip, and parameters or moments that moved
// are a step. What fits none of that begins a new window. The windows are
// numbered in place of attempts.
func Reconstruct(run *record.Run, book *Book) record.Rank {
	s := &series{book: book, state: Content{}}
	for _, rank := range run.Ranks {
		for i := range rank.Events {
			s.next(rank.Events[i])
		}
	}
	s.nameScales()
	for i := range s.events {
		s.events[i].Seq = i
	}
	return record.Rank{Events: s.events}
}

// leastScaleSeen is the smallest power of two whose division is taken for an
// unscale without any call that says so: a mean over ranks or micro-batches is
// a division as well.
const leastScaleSeen = 1024

type series struct {
	book   *Book
	events []step.Event
	window int

	grads, state Content // the last seen of each tensor
	gradsFile    []string
}

func (s *series) next(file step.Event) {
	s.add(file, file)
	if grads, ok := s.book.Of(file.After, "grad"); ok && len(grads) > 0 {
		s.gradients(file, grads)
		s.grads, s.gradsFile = maps.Clone(grads), file.After.Files
	}
	params, _ := s.book.Of(file.After, "param")
	moments := s.book.State(file.After)
	if len(params)+len(moments) > 0 {
		state := Content{}
		for name, ref := range params {
			state["param/"+name] = ref
		}
		for name, ref := range moments {
			state[name] = ref
		}
		s.step(file, state)
		maps.Copy(s.state, state)
	}
}

func (s *series) add(file step.Event, e step.Event) {
	if e.Op == "" {
		e.Op = e.Kind.String()
	}
	e.Recorded, e.Attempt = file.Recorded, step.Some(s.window)
	s.events = append(s.events, e)
}

// gradients tells what made these gradients of the last ones.
func (s *series) gradients(file step.Event, grads Content) {
	e := step.Event{After: step.Snapshot{Looked: true, Files: file.After.Files}}
	m := Move{}
	var moved []string
	for i, name := range sortedKeys(grads) {
		if old, ok := s.grads[name]; ok {
			if c, ok := s.book.Change(old, grads[name]); ok {
				m[i] = c
				if !c.Same() {
					moved = append(moved, name)
				}
			}
		}
	}
	if len(m) > 0 && m.Still() {
		return
	}
	if len(m) > 0 {
		e.Before = step.Snapshot{Looked: true, Files: s.gradsFile}
	}
	switch kind, limit, rule := shrinking(m); {
	case kind == step.Unscale:
		e.Kind, e.Scale = kind, step.Some(limit)
	case kind == step.Clip:
		e.Kind, e.Rule, e.Threshold, e.Norm = kind, rule, step.Some(limit), step.Some(m.Before().Norm())
	case kind == step.GradOp:
		e.Kind = kind
	default:
		moved = sortedKeys(grads)
		s.window++
		e.Kind, e.Before = step.Backward, step.Snapshot{Looked: true} // a new window; what was there before is not in it
	}
	e.Covers = step.Some(moved)
	s.add(file, e)
}

// shrinking names the change between two neighbours: an unscale and its scale, a
// clip and its threshold, something else done to the same gradients, or nothing
// (kind Other): these are other gradients.
func shrinking(m Move) (kind step.Kind, number float64, rule string) {
	if !telling(m) {
		if m.Before().NonFinite > 0 && m.After().NonFinite > 0 {
			return step.GradOp, 0, ""
		}
		return step.Other, 0, ""
	}
	if m.Before().NonFinite > 0 && m.After().NonFinite == 0 {
		return step.Other, 0, "" // what little was finite fits any factor
	}
	if f, ok := m.Factor(); ok {
		switch {
		case f > 0 && isPowerOfTwo(1/f) && 1/f >= leastScaleSeen:
			return step.Unscale, 1 / f, ""
		case f > 0 && f < 1 && !isMean(f, slackOf(m)):
			return step.Clip, m.After().Norm(), "global_norm"
		case f > 0:
			return step.GradOp, 0, ""
		}
		return step.Other, 0, ""
	}
	if limit, ok := cutOf(m); ok {
		return step.Clip, limit, "value"
	}
	if limit, ok := common(m, func(i int, c Change) float64 { return c.After.Norm() }); ok {
		return step.Clip, limit, "per_tensor"
	}
	var dot, before, after float64
	for _, i := range sortedIndices(m) {
		c := m[i]
		dot, before, after = dot+c.Dot, before+c.Sq[0], after+c.Sq[1]
	}
	if before > 0 && after > 0 && dot/math.Sqrt(before)/math.Sqrt(after) > 0.9 {
		return step.GradOp, 0, ""
	}
	return step.Other, 0, ""
}

// isMean reports whether f is 1/n for a small whole n: a mean over micro-batches
// or ranks rather than a clip.
func isMean(f, slack float64) bool {
	n := math.Round(1 / f)
	told := n*slack < 0.5 || isPowerOfTwo(n) // else every number is some 1/n, within rounding
	return n >= 2 && n <= 4096 && told && near(f*n, 1, slack)
}

// step tells whether an optimizer stepped between two states. Files may lie many
// steps apart, so a step is only told where the numbers leave no other reading:
// parameters that moved, with a state that shows that the last seen gradients
// were consumed, once; or parameters that stayed, bit for bit, beside gradients
// that are not finite: a step that was skipped. Parameters that are NaN tell
// nothing.
func (s *series) step(file step.Event, state Content) {
	var before string
	for _, key := range sortedKeys(state) {
		if old, had := s.state[key]; had && before != "" && old.file != before {
			return // states of several moments: nothing to compare with
		} else if had {
			before = old.file
		}
	}
	var moved, stayed []string
	for _, key := range sortedKeys(state) {
		old, had := s.state[key]
		name, isParam := strings.CutPrefix(key, "param/")
		if !had || !isParam {
			continue
		}
		switch c, ok := s.book.Change(old, state[key]); {
		case !ok || c.Before.NonFinite > 0:
		case !c.Same():
			moved = append(moved, name)
		default:
			stayed = append(stayed, name)
		}
	}
	e := step.Event{
		Kind: step.Step, Via: "optimizer",
		Before: step.Snapshot{Looked: true, Files: append(append([]string(nil), s.gradsFile...), before)},
		After:  file.After,
	}
	switch {
	case len(moved) > 0 && s.consumed(moved, state):
		e.Applied, e.Covers = step.Some(true), step.Some(moved)
	case len(moved) == 0 && len(stayed) > 0 && s.overflow(stayed):
		e.Called, e.Applied, e.Covers = step.Some(false), step.Some(false), step.Some(stayed)
	case len(moved) > 0:
		s.forget(moved) // by steps that nobody looked at
		return
	default:
		return
	}
	s.add(file, e)
	s.forget(e.Covers.Value)
}

// forget says that these gradients wait no more.
func (s *series) forget(params []string) {
	for _, name := range params {
		delete(s.grads, name)
	}
}

// consumed reports whether the state shows that one step took the last seen
// gradients: the step count rose by one, and the gradient that the moments, or
// the parameters of plain SGD, account for points where those do.
func (s *series) consumed(params []string, state Content) bool {
	var took Fitted
	for _, name := range params {
		grad, ok := s.grads[name]
		if !ok {
			return false
		}
		if now, ok := state["step/"+name]; ok {
			count, ok := s.book.Vector(now)
			old := []float64{0} // an optimizer that has not stepped has no state
			if ref, had := s.state["step/"+name]; had {
				old, _ = s.book.Vector(ref)
			}
			if !ok || len(old) != 1 || len(count) != 1 || count[0]-old[0] != 1 {
				return false
			}
		}
		for _, kind := range []struct {
			name       string
			keep, gain float64
		}{{"exp_avg", 0.9, 0.1}, {"momentum_buffer", 0.9, 1}, {"param", 1, -1}} {
			old, had := s.state[kind.name+"/"+name]
			now, has := state[kind.name+"/"+name]
			if !has || !had && kind.name == "param" {
				continue
			}
			if !had && kind.name == "momentum_buffer" {
				kind.gain = 1
			}
			if !took.add(s.book, grad, old, now, kind.keep, kind.gain) {
				return false
			}
			break
		}
	}
	_, cos := took.Fit()
	return cos > 0.99
}

func (s *series) overflow(params []string) bool {
	for _, name := range params {
		if st, ok := s.book.Stats(s.grads[name]); ok && st.NonFinite > 0 {
			return true
		}
	}
	return false
}

// nameScales gives each window's backward the scale that its gradients are
// divided by first. A later division by another number is no second unscale.
func (s *series) nameScales() {
	first := map[int]float64{}
	for i := range s.events {
		e := &s.events[i]
		if e.Kind != step.Unscale {
			continue
		}
		switch scale, seen := first[e.Attempt.Value]; {
		case !seen:
			first[e.Attempt.Value] = e.Scale.Value
		case scale != e.Scale.Value:
			e.Kind, e.Op = step.GradOp, step.GradOp.String()
		}
	}
	for i := range s.events {
		e := &s.events[i]
		if scale, ok := first[e.Attempt.Value]; ok && e.Kind == step.Backward {
			e.Factor = step.Some(scale)
		}
	}
}
