package evidence

import (
	"math"

	"ordercheck/record"
	"ordercheck/step"
)

// scales keeps the loss scales of one rank and says which unit a backward's
// term has.
type scales struct {
	off     map[string]bool    // scalers that are switched off
	current map[string]float64 // by scaler
	pending []scaledLoss       // scaled losses of this attempt
	attempt step.Maybe[int]

	called bool // some loss was handed to an enabled scaler
	by     hand
}

type scaledLoss struct {
	scaler string
	scale  float64

	loss, value step.Maybe[float64] // as given, and as returned
	used        bool                // by a backward
}

// hand says whether losses are multiplied by a scale without a scaler.
type hand uint8

const (
	notByHand   hand = iota
	byHand           // the numbers show it
	maybeByHand      // a constant factor that nothing divides out again where somebody looked
)

// leastHandScale is the smallest constant that is taken for a loss scale made
// by hand where no numbers show what it is. Weights of losses, accumulation and
// batch sizes are smaller, or no powers of two.
const leastHandScale = 256

func newScales(run *record.Run, rank record.Rank, book *Book) *scales {
	s := &scales{off: map[string]bool{}, current: map[string]float64{}}
	for id, sc := range run.Manifest.Scalers {
		if sc.Enabled != nil && !*sc.Enabled {
			s.off[id] = true
		}
	}
	for i := range rank.Events {
		e := &rank.Events[i]
		if e.Kind == step.ScalerCreate && step.Is(e.Enabled, false) {
			s.off[e.Scaler] = true
		}
	}
	for i := range rank.Events {
		if e := &rank.Events[i]; e.Kind == step.ScaleLoss && s.counts(e) {
			s.called = true
		}
	}
	switch {
	case s.called:
	case run.Kind == record.Tensors: // its factors are read off its divisions
		s.by = byHand
	default:
		s.by = scaledByHand(rank, book, mastersOf(run.Manifest))
	}
	return s
}

// counts reports whether a scaler's call does anything.
func (s *scales) counts(e *step.Event) bool {
	return !s.off[e.Scaler] && !step.Is(e.Enabled, false)
}

// any reports whether some loss of this rank is multiplied by a scale.
func (s *scales) any() bool { return s.called || s.by == byHand }

// see takes note of a call that shows a scale.
func (s *scales) see(e *step.Event) {
	if e.Attempt != s.attempt {
		s.attempt, s.pending = e.Attempt, nil
	}
	if !s.counts(e) {
		return
	}
	switch e.Kind {
	case step.ScaleLoss:
		if e.Scale.Known {
			s.pending = append(s.pending, scaledLoss{e.Scaler, e.Scale.Value, e.Loss, e.Scaled, false})
		}
	case step.ScalerCreate, step.UpdateScale, step.Load, step.Unscale:
	default:
		return
	}
	if e.Scale.Known && (e.Kind != step.Load || e.What == "scaler") {
		s.current[e.Scaler] = e.Scale.Value
	}
}

// term is the unit of what a backward adds, and the scalers in it.
func (s *scales) term(e *step.Event) (step.Unit, []string) {
	if s.by != notByHand {
		switch {
		case s.by == byHand && e.Factor.Known:
			return step.ScaleUnit(e.Factor.Value), nil
		case s.by == byHand || plausibleScale(e.Factor):
			return step.UnknownUnit, nil
		}
		return step.One, nil
	}
	if !s.called {
		return step.One, nil
	}
	for i := len(s.pending) - 1; i >= 0; i-- {
		p := &s.pending[i]
		switch {
		case same(p.value, e.Root):
			p.used = true
			return step.ScaleUnit(p.scale), []string{p.scaler}
		case same(p.loss, e.Root): // what scale returned was thrown away
			p.used = true
			return step.One, nil
		}
	}
	if term, ids := s.sum(); len(ids) > 0 {
		return term, ids
	}
	for _, id := range sortedKeys(s.current) {
		if step.Is(e.Factor, s.current[id]) {
			return step.ScaleUnit(e.Factor.Value), []string{id}
		}
	}
	// No loss of this attempt was handed to a scaler. It may have been scaled in
	// a way that no call shows, so nothing is claimed.
	return step.UnknownUnit, nil
}

// sum is the unit of a sum, or a part, of the scaled losses that no backward has
// used yet.
func (s *scales) sum() (unit step.Unit, ids []string) {
	for _, p := range s.pending {
		switch {
		case p.used:
			continue
		case len(ids) == 0:
			unit = step.ScaleUnit(p.scale)
		case !unit.Equal(step.ScaleUnit(p.scale)):
			unit = step.UnknownUnit
		}
		ids = append(ids, p.scaler)
	}
	return unit, ids
}

func same(a, b step.Maybe[float64]) bool { return a.Known && b.Known && sameValue(a.Value, b.Value) }

func sameValue(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 0x1p-20*math.Abs(a)
}

func plausibleScale(f step.Maybe[float64]) bool {
	return f.Known && f.Value >= leastHandScale && isPowerOfTwo(f.Value)
}

func isPowerOfTwo(v float64) bool {
	m, _ := math.Frexp(v)
	return m == 0.5
}

// scaledByHand looks at the constants that multiplied the losses. They are loss
// scales if the gradients are divided by just that constant somewhere, or if
// they move as a dynamic scale moves: among large powers of two, and down as
// well as up. A weight of the loss that only grows is none.
func scaledByHand(rank record.Rank, book *Book, master map[string]string) hand {
	var factors []float64
	for i := range rank.Events {
		if e := &rank.Events[i]; e.Kind == step.Backward && e.Factor.Known {
			if n := len(factors); n == 0 || factors[n-1] != e.Factor.Value {
				factors = append(factors, e.Factor.Value)
			}
		}
	}
	if len(factors) == 0 {
		return notByHand
	}
	fell, large := false, false
	for i, f := range factors {
		if !isPowerOfTwo(f) || f < 1 {
			fell, large = false, false
			break
		}
		large = large || f >= leastHandScale
		fell = fell || i > 0 && f < factors[i-1]
	}
	if fell && large || dividedOut(rank, book, master) {
		return byHand
	}
	for _, f := range factors {
		if plausibleScale(step.Some(f)) {
			return maybeByHand
		}
	}
	return notByHand
}

// dividedOut reports whether somewhere between a backward and the next one the
// gradients, or the masters that they are copied into, are its gradients
// divided by its factor.
func dividedOut(rank record.Rank, book *Book, master map[string]string) bool {
	var source Content
	var factor float64
	for i := range rank.Events {
		e := &rank.Events[i]
		if e.Kind == step.Backward {
			source, _ = book.Of(e.After, "grad")
			factor = e.Factor.Value
			continue
		}
		if len(source) == 0 || factor < 8 || !e.Kind.MovesGradients() || e.Kind == step.ZeroGrad {
			continue
		}
		for _, s := range []step.Snapshot{e.Before, e.After} {
			now, _ := book.Of(s, "grad")
			for _, name := range sortedKeys(source) {
				for _, to := range []string{name, master[name]} {
					after, ok := now[to]
					if !ok {
						continue
					}
					if c, ok := book.Change(source[name], after); ok {
						if f, ok := c.Factor(); ok && near(f*factor, 1, c.Format.Slack()) {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

// mastersOf maps FP16 parameters to their float32 copies.
func mastersOf(m record.Manifest) map[string]string {
	out := map[string]string{}
	for name, p := range m.Parameters {
		if p.Master != nil {
			out[name] = *p.Master
		}
	}
	return out
}

func near(a, b, rel float64) bool { return math.Abs(a-b) <= rel*math.Abs(b) }
