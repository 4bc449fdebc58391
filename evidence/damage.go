package evidence

import "ordercheck/step"

// Damage is optimizer state that is not finite.
type Damage struct {
	Event           int
	Count, Elements int
	Tensor          string // the first
}

// DamagedStates finds first moments that became not finite: the optimizer took
// such a gradient, for m′ = β1·m + (1−β1)·g stays finite for finite g. Second
// moments prove nothing (g² overflows before g), nor do 16-bit moments.
func (s *Story) DamagedStates() (out []Damage) {
	for i := range s.Events {
		e := s.Events[i]
		if e.Kind != step.Step && e.Kind != step.Note {
			continue
		}
		after, before := s.damage(i, e.After), s.damage(i, e.Before)
		if after.Count > 0 && before.Count == 0 {
			out = append(out, after)
		}
	}
	return out
}

func (s *Story) damage(event int, snap step.Snapshot) Damage {
	d := Damage{Event: event}
	for _, kind := range []string{"exp_avg", "momentum_buffer"} {
		c, _ := s.Book.Of(snap, kind)
		for _, name := range sortedKeys(c) {
			if t := s.Book.dtype(c[name]); t == "F16" || t == "BF16" {
				continue
			}
			st, ok := s.Book.Stats(c[name])
			if !ok {
				continue
			}
			d.Elements += st.N
			if st.NonFinite > 0 && d.Count == 0 {
				d.Tensor = kind + "/" + name
			}
			d.Count += st.NonFinite
		}
	}
	return d
}
