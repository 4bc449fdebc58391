package evidence

import (
	"fmt"

	"ordercheck/step"
)

// Finiteness of the gradients that a step took.
type Finiteness struct {
	Known     bool
	NonFinite bool
	Count     int    // elements that are not finite, where they were looked at
	Elements  int    // elements that were looked at
	Event     int    // where it was seen
	How       string // for a message
}

// Taken says whether the gradients of one part were finite when the step took
// them. Numbers decide: the snapshot before the step, else the one after the
// last call that may have moved them. Without, a norm that is not finite tells,
// if it covers nothing but this part's optimizer and was not made in FP16,
// where a norm overflows while the gradients are finite.
func (s *Story) Taken(c *step.Consumption, p *step.Part) Finiteness {
	grads, looked := s.Book.Of(s.Events[c.Event].Before, "grad")
	if looked && len(grads) > 0 {
		return s.count(grads, p.On, c.Event)
	}
	for i := len(p.Words) - 1; i >= 0; i-- {
		w := &p.Words[i]
		if w.Op.Event >= c.Event {
			continue
		}
		e := s.Events[w.Op.Event]
		if grads, ok := s.Book.Of(e.After, "grad"); ok && len(grads) > 0 && !e.Inferred {
			return s.count(grads, p.On, w.Op.Event)
		}
		if f := s.normSays(c, p, w); f.Known {
			return f
		}
		switch w.Op.Kind {
		case step.Unscale, step.Check:
			if w.Op.FoundInf.Known {
				return Finiteness{Known: true, NonFinite: w.Op.FoundInf.Value, Event: w.Op.Event, How: fmt.Sprintf("found_inf was %v", w.Op.FoundInf.Value)}
			}
		case step.Clip:
			if e.Rule != "global_norm" {
				return Finiteness{} // it may have turned Inf into a number
			}
		case step.Norm:
		default:
			return Finiteness{}
		}
	}
	return Finiteness{}
}

func (s *Story) count(grads Content, on step.Set, event int) Finiteness {
	f := Finiteness{Event: event}
	for _, i := range on.Members() {
		ref, ok := grads[s.Universe.Names[i]]
		if !ok {
			continue
		}
		if st, ok := s.Book.Stats(ref); ok {
			f.Known = true
			f.Count += st.NonFinite
			f.Elements += st.N
		}
	}
	f.NonFinite = f.Count > 0
	f.How = fmt.Sprintf("%d of %d gradient elements are not finite", f.Count, f.Elements)
	return f
}

// normSays reads a norm, or a clip's norm, that this optimizer's gradients had.
func (s *Story) normSays(c *step.Consumption, p *step.Part, w *step.Word) Finiteness {
	e := s.Events[w.Op.Event]
	var norm step.Maybe[float64]
	switch e.Kind {
	case step.Norm:
		norm = e.Value
	case step.Clip:
		norm = e.Norm
	}
	owned, known := s.Universe.Owned(c.Optimizer)
	if !norm.Known || e.NormGiven || !known || !w.Op.Certain || !w.Op.On.Within(owned) || s.half(w.Op.On) {
		return Finiteness{}
	}
	f := Finiteness{Known: true, Event: w.Op.Event, NonFinite: !isFinite(norm.Value)}
	f.How = fmt.Sprintf("their norm is %v", norm.Value)
	return f
}

// half reports whether gradients of these parameters are stored in 16 bits, so
// that a norm of them may be as well.
func (s *Story) half(on step.Set) bool {
	for _, i := range on.Members() {
		switch s.Dtypes[s.Universe.Names[i]] {
		case "float16", "bfloat16", "half":
			return true
		}
	}
	return false
}

func (s *Story) findGuard(optimizer string, on step.Set) bool {
	on = on.Or(s.Universe.sources(on))
	stepped := map[step.Maybe[int]]bool{}
	for i := range s.Machine.Consumptions {
		c := &s.Machine.Consumptions[i]
		if c.Optimizer == optimizer {
			if c.Outcome == step.Skipped {
				return true
			}
			stepped[c.Attempt] = true
		}
	}
	for i := range s.Events {
		e := s.Events[i]
		if stepped[e.Attempt] || !e.Attempt.Known {
			continue
		}
		switch e.Kind {
		case step.Backward:
			if grads, ok := s.Book.Of(e.After, "grad"); ok && s.count(grads, on, i).NonFinite {
				return true
			}
		case step.Clip, step.Norm:
			v := e.Norm
			if e.Kind == step.Norm {
				v = e.Value
			}
			if v.Known && !isFinite(v.Value) {
				return true
			}
		}
	}
	return false
}
