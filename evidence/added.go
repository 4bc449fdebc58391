package evidence

import (
	"math"

	"ordercheck/step"
)

// AddedTerm is something that was added to gradients which carry a scale.
type AddedTerm struct {
	Event     int
	Optimizer string
	Scale     float64
	Value     float64 // root mean square of what was added
}

// AddedTerms gathers, by place, what code without calls, or a recorded grad_op,
// added to scaled gradients.
func (s *Story) AddedTerms() [][]AddedTerm {
	places := map[string][]AddedTerm{}
	seen := map[int]bool{}
	s.eachPart(func(p *step.Part) {
		for _, w := range p.Words {
			scale, carries := w.Unit.IsScale()
			e := s.Events[w.Op.Event]
			m := s.Moves[w.Op.Event].Only(p.On)
			if e.Kind != step.GradOp || !carries || seen[w.Op.Event] || len(m) == 0 || w.Op.Muddles {
				continue
			}
			var diff float64
			n := 0
			for _, i := range sortedIndices(m) {
				diff += m[i].DiffSq
				n += m[i].Before.N
			}
			if _, one := m.Factor(); one || diff == 0 || m.Before().NonFinite > 0 {
				continue // multiplied, not added to
			}
			seen[w.Op.Event] = true
			places[place(e)] = append(places[place(e)], AddedTerm{w.Op.Event, s.OwnerOf(p.On), scale, math.Sqrt(diff / float64(n))})
		}
	})
	var out [][]AddedTerm
	for _, key := range sortedKeys(places) {
		out = append(out, places[key])
	}
	return out
}

// Constancy of a value while the scale moves.
type Constancy = constant

// What Compared answers.
const (
	Untested = untested // the scale never moved
	Stays    = stays    // in raw numbers
	Moves    = moves    // with the scale
	Unclear  = unclear
)

// Compared tests the size of what was added in one place. Gradients vary from
// step to step, and so does whatever is in proportion to them: what stays within
// slack over all steps while the scale moves is a constant in raw numbers, what
// does so after division by the scale is one in true ones.
func Compared(terms []AddedTerm, slack float64) Constancy {
	raw, scaled := newSpread(), newSpread()
	scales := newSpread()
	for _, t := range terms {
		raw.add(t.Value)
		scaled.add(t.Value / t.Scale)
		scales.add(t.Scale)
	}
	switch {
	case len(terms) < 3 || scales.lo == scales.hi:
		return untested
	case raw.within(slack):
		return stays
	case scaled.within(slack):
		return moves
	}
	return unclear
}

type spread struct{ lo, hi float64 }

func newSpread() spread { return spread{math.Inf(1), 0} }

func (s *spread) add(v float64) { s.lo, s.hi = min(s.lo, v), max(s.hi, v) }

func (s spread) within(slack float64) bool { return s.hi <= s.lo*(1+slack) }

// SawFreshness reports whether somebody looked at the buffer before the window's
// first backward.
func (s *Story) SawFreshness(p *step.Part) bool {
	for _, w := range p.Words {
		if w.Op.Kind == step.Backward {
			return w.Op.Fresh.Known
		}
	}
	return false
}

// OnHalfGrid reports whether gradients that were looked at after a backward lie
// on the grid of binary16: they were computed in it.
func (s *Story) OnHalfGrid() bool {
	for _, e := range s.Events {
		if e.Kind != step.Backward {
			continue
		}
		grads, _ := s.Book.Of(e.After, "grad")
		on, n := 0, 0
		for _, name := range sortedKeys(grads) {
			v, ok := s.Book.Vector(grads[name])
			if !ok {
				continue
			}
			for _, x := range v {
				if x == 0 || !isFinite(x) {
					continue
				}
				n++
				if m, _ := math.Frexp(x); m*2048 == math.Trunc(m*2048) {
					on++
				}
			}
		}
		if n > 0 {
			return on*10 > n*9
		}
	}
	return false
}

// Underflowed counts, in the first gradients that were looked at after a
// backward, the elements that are zero or below binary16's normal numbers.
// event is -1 where nobody looked.
func (s *Story) Underflowed() (event, small, all int) {
	for i, e := range s.Events {
		if e.Kind != step.Backward {
			continue
		}
		grads, _ := s.Book.Of(e.After, "grad")
		if len(grads) == 0 {
			continue
		}
		for _, name := range sortedKeys(grads) {
			v, _ := s.Book.Vector(grads[name])
			for _, x := range v {
				all++
				if math.Abs(x) < 0x1p-14 {
					small++
				}
			}
		}
		return i, small, all
	}
	return -1, 0, 0
}
