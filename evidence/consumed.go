package evidence

import (
	"math"

	"ordercheck/record"
	"ordercheck/step"
)

// Consumed compares the gradient that an optimizer's step took, computed from
// its state before and after, with the gradient that stood in the buffer. It
// returns the least-squares factor consumed ≈ factor·buffer and the cosine.
//
//	Adam and its kin:  g = (m′ − β1·m)/(1 − β1)
//	SGD with momentum: g = (b′ − μ·b)/(1 − dampening); the first step keeps b′ = g
//
// With coupled weight decay g contains λp as well, which the cosine shows. ok is
// false where there is no such state. Design, section 6; accuracy: float32
// states give ‖g‖ to 1e-5.
func (s *Story) Consumed(c *step.Consumption, on step.Set, m record.Optimizer) (factor, cosine float64, ok bool) {
	e := &s.Events[c.Event]
	grads, looked := s.Book.Of(e.Before, "grad")
	if !looked {
		return 0, 0, false
	}
	kind, keep, gain := "exp_avg", 0.9, 0.1
	if len(m.Settings.Betas) > 0 {
		keep = float64(m.Settings.Betas[0])
		gain = 1 - keep
	}
	after, has := s.Book.Of(e.After, kind)
	if !has {
		if kind, gain = "momentum_buffer", 1; m.Settings.Momentum != nil {
			keep = float64(*m.Settings.Momentum)
		}
		if d := m.Settings.Dampening; d != nil {
			gain = 1 - float64(*d)
		}
		if after, has = s.Book.Of(e.After, kind); !has {
			return 0, 0, false
		}
	}
	before, _ := s.Book.Of(e.Before, kind)
	var dot, sqG, sqU float64
	for _, i := range on.Members() {
		name := s.Universe.Names[i]
		g, ok1 := s.vector(grads, name)
		u, ok2 := s.vector(after, name)
		if !ok1 || !ok2 || len(g) != len(u) {
			continue
		}
		old, had := s.vector(before, name)
		had = had && len(old) == len(u)
		first := kind == "momentum_buffer" && !had
		for j := range u {
			v := u[j]
			if had {
				v -= float64(keep * old[j])
			}
			if !first {
				v /= gain
			}
			if !isFinite(v) || !isFinite(g[j]) {
				continue
			}
			dot += float64(v * g[j])
			sqG += float64(g[j] * g[j])
			sqU += float64(v * v)
		}
	}
	if sqG == 0 || sqU == 0 {
		return 0, 0, false
	}
	return dot / sqG, dot / math.Sqrt(sqG) / math.Sqrt(sqU), true
}

func (s *Story) vector(c Content, name string) ([]float64, bool) {
	ref, ok := c[name]
	if !ok {
		return nil, false
	}
	return s.Book.Vector(ref)
}
