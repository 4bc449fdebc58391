package evidence

import (
	"fmt"

	"ordercheck/step"
)

// Which tensors calls were handed, beside those that are stepped.

// Optimizers lists those that own parameters here.
func (u *Universe) Optimizers() []string { return sortedKeys(u.owned) }

// Set is the set of the named parameters.
func (u *Universe) Set(names []string) step.Set { return u.set(names) }

// MissedBy finds a clip of a step's attempt that was meant for the gradients
// that the step took and did not touch them: it was handed no tensor, or FP16
// gradients that had been copied into the masters before. clip is -1 without one.
func (s *Story) MissedBy(c *step.Consumption) (clip int, on step.Set, why string) {
	owned, known := s.Universe.Owned(c.Optimizer)
	if !known {
		return -1, nil, ""
	}
	touched := map[int]bool{}
	for _, p := range c.Parts {
		for _, w := range p.Words {
			touched[w.Op.Event] = true
		}
	}
	sources := s.Universe.sources(owned)
	for _, i := range s.at(c.Attempt) {
		e := s.Events[i]
		if e.Kind != step.Clip || e.Inferred || i > c.Event || e.Threshold.Known && e.Threshold.Value > 1e300 {
			continue
		}
		switch covers := s.Universe.set(e.Covers.Value); {
		case e.Covers.Known && covers.Empty() && (!e.NTensors.Known || e.NTensors.Value == 0) && !s.look().handed[place(e)]:
			if s.clippedElse(c) {
				continue
			}
			return i, owned, "The clip was handed no tensor at all and returned norm 0, while gradients wait to be stepped: an iterator that was used up, or a list that was never filled."
		case e.Covers.Known && !covers.Empty() && covers.Within(sources) && !touched[i] && s.copied(c) && s.moved(i):
			return i, owned, fmt.Sprintf("The clip acted on %d FP16 gradients after they had been copied into the float32 masters; the optimizer steps the masters, which it did not touch.", covers.Len())
		}
	}
	return -1, nil, ""
}

func (s *Story) clippedElse(c *step.Consumption) bool {
	for _, p := range c.Parts {
		for _, w := range p.Words {
			if w.Op.Kind == step.Clip && !w.Op.On.Empty() {
				return true
			}
		}
	}
	return false
}

// copied reports whether a step's parts were filled by copies of other gradients.
func (s *Story) copied(c *step.Consumption) bool {
	for _, p := range c.Parts {
		if p.State == step.Filled && !s.Universe.copies.And(p.On).Empty() {
			return true
		}
	}
	return false
}

// moved reports whether a clip limited something: by the numbers, else by its norm.
func (s *Story) moved(event int) bool {
	if m, ok := s.Moves[event]; ok {
		return !m.Still()
	}
	e := s.Events[event]
	return e.Norm.Known && e.Threshold.Known && e.Norm.Value > e.Threshold.Value
}

// TrueAt reports whether all of a step's gradients were true ones.
func (s *Story) TrueAt(c *step.Consumption) bool {
	for i := range c.Parts {
		if p := &c.Parts[i]; p.State == step.Filled && (!p.Unit().IsOne() || p.Claimed) {
			return false
		}
	}
	return len(c.Parts) > 0
}

// CountedTwice lists the tensors that a call was handed twice, under one name or
// as two names of one tied parameter.
func (s *Story) CountedTwice(e *step.Event) (twice []string) {
	seen := map[string]int{}
	for _, name := range e.Covers.Value {
		if same, ok := s.SameAs[name]; ok {
			name = same
		}
		if seen[name]++; seen[name] == 2 {
			twice = append(twice, name)
		}
	}
	return twice
}

// OnceElsewhere reports whether the other parts of a step were unscaled once
// where this one was unscaled twice, by the same code.
func (s *Story) OnceElsewhere(c *step.Consumption, p *step.Part, event int) bool {
	for i := range c.Parts {
		q := &c.Parts[i]
		if q.State == step.Filled && !q.On.Within(p.On) && q.Unit().IsOne() {
			return true
		}
	}
	return false
}

// Unclipped are the parameters of an optimizer that no clip of the run covers.
type Unclipped struct {
	Event     int // a clip
	Optimizer string
	Names     []string
	All       int
}

// NeverClipped says for each optimizer that steps, and of which something is
// clipped, what is not.
func (s *Story) NeverClipped() (out []Unclipped) {
	var covered step.Set
	clip := -1
	for i, e := range s.Events {
		if e.Kind != step.Clip || e.Threshold.Known && e.Threshold.Value > 1e300 {
			continue
		}
		if !e.Covers.Known {
			return nil
		}
		covered = covered.Or(s.Universe.set(e.Covers.Value))
		clip = i
	}
	if clip < 0 {
		return nil
	}
	for _, id := range s.Universe.Optimizers() {
		owned := s.Universe.owned[id]
		var taken step.Set
		for i := range s.Machine.Consumptions {
			if c := &s.Machine.Consumptions[i]; c.Optimizer == id {
				for _, p := range c.Parts {
					if p.State == step.Filled {
						taken = taken.Or(p.On)
					}
				}
			}
		}
		reached := covered
		for from, to := range s.Universe.master {
			if covered.Has(from) {
				reached = reached.Or(step.SetOf(to))
			}
		}
		stepped := owned.And(taken)
		if left := stepped.Minus(reached); !stepped.And(reached).Empty() {
			out = append(out, Unclipped{Event: clip, Optimizer: id, Names: s.Universe.Members(left), All: stepped.Len()})
		}
	}
	return out
}

// NormInput measures the gradients that a clip's norm was taken of, and names
// the format that they are stored in.
func (s *Story) NormInput(event int) (Stats, string) {
	e := s.Events[event]
	on := s.Universe.All()
	if e.Covers.Known {
		on = s.Universe.set(e.Covers.Value)
	}
	grads, _ := s.Book.Of(e.Before, "grad")
	format := ""
	for _, i := range on.Members() {
		if ref, ok := grads[s.Universe.Names[i]]; ok {
			format = s.Book.dtype(ref)
		}
	}
	return s.NormOf(e.Before, on), format
}

// Flushed counts the elements of FP16 gradients that an unscale made zero.
func (s *Story) Flushed(event int) (lost, nonzero int) {
	grads, _ := s.Book.Of(s.Events[event].Before, "grad")
	after, _ := s.Book.Of(s.Events[event].After, "grad")
	for _, name := range sortedKeys(grads) {
		now, ok := after[name]
		if !ok || s.Book.dtype(grads[name]) != "F16" || s.Book.dtype(now) != "F16" {
			continue
		}
		a, ok1 := s.Book.Vector(grads[name])
		b, ok2 := s.Book.Vector(now)
		if !ok1 || !ok2 || len(a) != len(b) {
			continue
		}
		for i := range a {
			if a[i] != 0 {
				nonzero++
				if b[i] == 0 {
					lost++
				}
			}
		}
	}
	return lost, nonzero
}
