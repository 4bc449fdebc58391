package evidence

import (
	"fmt"
	"math"

	"ordercheck/step"
)

// Contradiction is a call that says one thing while the numbers beside it say
// another.
type Contradiction struct {
	Event         int
	Says          string
	Call, Numbers any
}

func (s *Story) findContradictions() (out []Contradiction) {
	for i := range s.Events {
		e := s.Events[i]
		if e.Inferred {
			continue
		}
		for _, check := range []func(int, *step.Event) (Contradiction, bool){
			s.unscaleContradicts, s.verdictContradicts, s.normContradicts, s.stepContradicts, s.zeroContradicts,
		} {
			if c, ok := check(i, e); ok {
				c.Event = i
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// unscaleContradicts: gradients divided by another number than the call names.
func (s *Story) unscaleContradicts(i int, e *step.Event) (c Contradiction, bad bool) {
	m, ok := s.Moves[i]
	if e.Kind != step.Unscale || !ok || !e.Scale.Known || e.Scale.Value == 0 || step.Is(e.FoundInf, true) {
		return c, false
	}
	on, _ := s.Universe.Owned(e.Optimizer)
	m = m.Only(on)
	f, ok := m.Factor()
	if !ok || near(f*e.Scale.Value, 1, 1e-3) {
		return c, false
	}
	return Contradiction{
		Says: fmt.Sprintf("The call says that gradients were divided by %g, but they were divided by %g.", e.Scale.Value, 1/f),
		Call: e.Scale.Value, Numbers: 1 / f,
	}, true
}

// verdictContradicts: found_inf is another one than the gradients'.
func (s *Story) verdictContradicts(i int, e *step.Event) (c Contradiction, bad bool) {
	if e.Kind != step.Unscale || !e.FoundInf.Known {
		return c, false
	}
	grads, looked := s.Book.Of(e.Before, "grad")
	on, known := s.Universe.Owned(e.Optimizer)
	if !looked || !known {
		return c, false
	}
	f := s.count(grads, on, i)
	if !f.Known || f.NonFinite == e.FoundInf.Value || !f.NonFinite && s.Ranks > 1 {
		return c, false
	}
	return Contradiction{
		Says: fmt.Sprintf("The call says found_inf = %v, but %s.", e.FoundInf.Value, f.How),
		Call: e.FoundInf.Value, Numbers: f.NonFinite,
	}, true
}

// normContradicts: a clip's norm is not that of the gradients it was handed.
func (s *Story) normContradicts(i int, e *step.Event) (c Contradiction, bad bool) {
	if e.Kind != step.Clip || e.Rule != "global_norm" || e.NormGiven || !e.Norm.Known || !isFinite(e.Norm.Value) ||
		s.Ranks > 1 || !step.Is(e.NormType, 2) || !e.Covers.Known {
		return c, false
	}
	on := s.Universe.set(e.Covers.Value)
	if s.half(on) || e.NTensors.Known && e.NTensors.Value != on.Len() {
		return c, false
	}
	st := s.NormOf(e.Before, on)
	if st.N == 0 || st.NonFinite > 0 || near(st.Norm(), e.Norm.Value, 1e-3) {
		return c, false
	}
	return Contradiction{
		Says: fmt.Sprintf("The clip says that the norm was %g, but the gradients it was handed have norm %g.", e.Norm.Value, st.Norm()),
		Call: e.Norm.Value, Numbers: st.Norm(),
	}, true
}

// stepContradicts: a step that did not apply moved parameters.
func (s *Story) stepContradicts(i int, e *step.Event) (c Contradiction, bad bool) {
	if e.Kind != step.Step || !step.Is(e.Applied, false) && !step.Is(e.Called, false) {
		return c, false
	}
	before, ok1 := s.Book.Of(e.Before, "param")
	after, ok2 := s.Book.Of(e.After, "param")
	if !ok1 || !ok2 {
		return c, false
	}
	on, _ := s.Universe.Owned(e.Optimizer)
	moved := 0
	for _, j := range on.Members() {
		b, has1 := before[s.Universe.Names[j]]
		a, has2 := after[s.Universe.Names[j]]
		if has1 && has2 {
			if ch, ok := s.Book.Change(b, a); ok {
				moved += ch.Moved
			}
		}
	}
	if moved == 0 {
		return c, false
	}
	return Contradiction{
		Says: fmt.Sprintf("The call says that the step was skipped, but %d parameter elements moved.", moved),
		Call: "skipped", Numbers: moved,
	}, true
}

// zeroContradicts: gradients that were zeroed are not zero.
func (s *Story) zeroContradicts(i int, e *step.Event) (c Contradiction, bad bool) {
	if e.Kind != step.ZeroGrad {
		return c, false
	}
	on, known := s.Universe.Owned(e.Optimizer)
	if !known || e.Optimizer == "" {
		return c, false
	}
	st := s.NormOf(e.After, on)
	if st.N == 0 || st.Zero() {
		return c, false
	}
	says, numbers := fmt.Sprintf("their norm is %g afterwards", st.Norm()), any(st.Norm())
	if st.NonFinite > 0 {
		numbers = fmt.Sprintf("%d not finite", st.NonFinite)
		says = fmt.Sprintf("%d of %d elements are not finite afterwards", st.NonFinite, st.N)
	}
	return Contradiction{
		Says: "The gradients were zeroed, but " + says + ".",
		Call: 0.0, Numbers: numbers,
	}, true
}

// NormOf joins the statistics of the gradients in a snapshot, over a set of parameters.
func (s *Story) NormOf(snap step.Snapshot, on step.Set) Stats {
	var out Stats
	grads, _ := s.Book.Of(snap, "grad")
	for _, i := range on.Members() {
		ref, ok := grads[s.Universe.Names[i]]
		if !ok {
			continue
		}
		if st, ok := s.Book.Stats(ref); ok {
			out.join(st)
		}
	}
	return out
}

// OwnerOf names the optimizer that owns all of a set, "" if none or several do.
func (s *Story) OwnerOf(on step.Set) string {
	owner := ""
	for _, id := range sortedKeys(s.Universe.owned) {
		if on.Within(s.Universe.owned[id]) {
			if owner != "" {
				return ""
			}
			owner = id
		}
	}
	return owner
}

// TermScale is the scale that the root of a term was multiplied by, for messages.
func (s *Story) TermScale(t step.Term) string {
	if f := s.Events[t.Event].Factor; f.Known && !math.IsNaN(f.Value) {
		return fmt.Sprintf("%g", f.Value)
	}
	return t.Unit.String()
}
