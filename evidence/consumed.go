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
	e := s.Events[c.Event]
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
	before, has := s.Book.Of(e.Before, kind)
	if _, looked := s.Book.Of(e.Before, "param"); !has && !looked {
		return 0, 0, false // nobody looked whether there was a state already
	}
	var took Fitted
	for _, i := range on.Members() {
		name := s.Universe.Names[i]
		now, ok := after[name]
		grad, ok2 := grads[name]
		if !ok || !ok2 {
			continue
		}
		g := gain
		old, had := before[name]
		if kind == "momentum_buffer" && !had {
			g = 1
		}
		took.add(s.Book, grad, old, now, keep, g)
	}
	factor, cosine = took.Fit()
	return factor, cosine, factor != 0
}

// Fitted gathers how a consumed gradient u lies to the one in the buffer, g.
type Fitted struct{ dot, sqG, sqU float64 }

// add computes u = (now − keep·old)/gain for one tensor; without old it is
// now/gain. Elements that are not finite are left out. It reports whether the
// tensors could be read and have one shape.
func (f *Fitted) add(b *Book, grad, old, now Ref, keep, gain float64) bool {
	g, ok1 := b.Vector(grad)
	u, ok2 := b.Vector(now)
	if !ok1 || !ok2 || len(g) != len(u) {
		return false
	}
	var o []float64
	if old != (Ref{}) {
		if o, ok1 = b.Vector(old); !ok1 || len(o) != len(u) {
			return false
		}
	}
	for j, v := range u {
		if o != nil {
			v -= float64(keep * o[j])
		}
		if v /= gain; !isFinite(v) || !isFinite(g[j]) {
			continue
		}
		f.dot += float64(v * g[j])
		f.sqG += float64(g[j] * g[j])
		f.sqU += float64(v * v)
	}
	return true
}

// Fit returns the least-squares factor u ≈ f·g and the cosine; 0, 0 where
// nothing can be said.
func (f Fitted) Fit() (factor, cosine float64) {
	if f.sqG == 0 || f.sqU == 0 {
		return 0, 0
	}
	return f.dot / f.sqG, f.dot / math.Sqrt(f.sqG) / math.Sqrt(f.sqU)
}
