package evidence

import (
	"strings"

	"ordercheck/step"
)

// Logged is a number that the user's own log said, beside what it should be.
type Logged struct {
	Event       int
	Value, True float64
	Scale       float64
	Scaled      bool // it still carries the scale
	Clipped     bool // it is the norm after the clip
	OtherScale  bool // it was divided by another step's scale
}

// sameLogged is how far a logged number may lie from what it is: logs round.
const sameLogged = 1e-3

// LoggedNorms compares logged gradient norms with the norm that the attempt's
// gradients had before any clip, in their true unit, where it was measured or a
// call tells it.
func (s *Story) LoggedNorms() (out []Logged) {
	for i, e := range s.Events {
		if e.Kind != step.Log || !e.Value.Known || !isFinite(e.Value.Value) || !strings.Contains(strings.ToLower(e.Key), "norm") {
			continue
		}
		norm, scale, clipped, ok := s.normAt(e.Attempt)
		if !ok || norm == 0 {
			continue
		}
		l := Logged{Event: i, Value: e.Value.Value, True: norm, Scale: scale}
		l.Scaled = scale != 1 && near(l.Value, norm*scale, sameLogged) && !near(scale, 1, 0.5)
		l.Clipped = clipped > 0 && clipped < norm*(1-10*sameLogged) && near(l.Value, clipped, sameLogged)
		out = append(out, l)
	}
	return out
}

// normAt is the true norm of an attempt's gradients before they were clipped,
// the scale that the attempt's loss carried, and the norm that a clip left.
func (s *Story) normAt(attempt step.Maybe[int]) (norm, scale, clipped float64, ok bool) {
	scale = 1
	for _, c := range s.turns(attempt) {
		if c.Outcome != step.Applied {
			continue
		}
		for j := range c.Parts {
			for _, w := range c.Parts[j].Words {
				e := s.Events[w.Op.Event]
				if t := w.Op.Term; w.Op.Kind == step.Backward {
					if v, scaled := t.IsScale(); scaled {
						scale = v
					}
				}
				if w.Op.Kind != step.Clip || !e.Norm.Known || !isFinite(e.Norm.Value) || ok {
					continue
				}
				unit, k := 1.0, 0
				if n, v, known := w.Unit.Exponent(); known {
					k, unit = n, v
				} else {
					continue
				}
				norm = e.Norm.Value
				if k == 1 {
					norm /= unit
				}
				ok = true
				if m := s.Moves[w.Op.Event]; len(m) > 0 && !m.Still() {
					clipped = m.After().Norm()
				} else if e.Threshold.Known && e.Threshold.Value < e.Norm.Value {
					clipped = e.Threshold.Value
				}
			}
		}
	}
	return norm, scale, clipped, ok
}

// LoggedLosses compares logged losses with the losses that were scaled.
func (s *Story) LoggedLosses() (out []Logged) {
	type pair struct{ loss, scale float64 }
	at := map[step.Maybe[int]]pair{}
	for _, e := range s.Events {
		if e.Kind == step.ScaleLoss && e.Loss.Known && e.Scale.Known && isFinite(e.Loss.Value) {
			at[e.Attempt] = pair{e.Loss.Value, e.Scale.Value}
		}
	}
	other := map[step.Maybe[int]][]float64{} // the scales before and after an attempt's
	history := s.ScaleHistory()
	for i, a := range history {
		for _, j := range []int{i - 1, i + 1} {
			if j >= 0 && j < len(history) && history[j].Scale != a.Scale {
				other[a.Attempt] = append(other[a.Attempt], history[j].Scale)
			}
		}
	}
	for i, e := range s.Events {
		p, ok := at[e.Attempt]
		if e.Kind != step.Log || !ok || !e.Value.Known || !strings.Contains(strings.ToLower(e.Key), "loss") || p.loss == 0 {
			continue
		}
		l := Logged{Event: i, Value: e.Value.Value, True: p.loss, Scale: p.scale}
		r := l.Value / l.True
		for _, scale := range other[e.Attempt] {
			l.OtherScale = l.OtherScale || near(r, p.scale/scale, sameLogged)
		}
		out = append(out, l)
	}
	return out
}
