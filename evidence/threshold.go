package evidence

import (
	"math"
	"slices"

	"ordercheck/step"
)

// thresholdUnits tests every clip's threshold at two scales. A threshold that
// stays while the scale moves is in the unit of true gradients; one that moves
// with the scale is in theirs. Where the scale never moved the declared
// threshold decides, else nothing is said.
//
// A norm that stays while the scale moves was true, whatever the calls say:
// then the gradients did not carry the scale, and nothing is said either.
func thresholdUnits(s *Story, declared Declared) map[int]step.Unit {
	units := map[int]step.Unit{}
	raw := map[string]bool{} // places of clips by code without calls, whose threshold stays
	for _, clips := range s.clipsBySite() {
		switch threshold := constancy(clips, func(c clipAt) float64 { return c.threshold }, exactly); {
		case threshold == stays && !normStays(clips):
			for _, c := range clips {
				units[c.event] = step.One
				raw[place(s.Events[c.event])] = true
			}
		case threshold == moves:
			for _, c := range clips {
				units[c.event] = step.ScaleUnit(c.scale)
			}
		case threshold == untested && declared.MaxNorm.Known:
			for _, c := range clips {
				switch {
				case near(c.threshold, declared.MaxNorm.Value, 1e-6):
					units[c.event] = step.One
				case near(c.threshold, declared.MaxNorm.Value*c.scale, 1e-6):
					units[c.event] = step.ScaleUnit(c.scale)
				}
			}
		}
	}
	// Where nobody looked, a clip by code without calls has the unit that it had
	// in the same place where somebody did.
	for i := range s.Events {
		if e := s.Events[i]; e.Kind == step.Clip && e.Inferred && !e.Threshold.Known && raw[place(e)] {
			units[i] = step.One
		}
	}
	return units
}

// AtAnotherScale names a loss scale, other than the given one, at which the same
// line clipped at the same threshold.
func (s *Story) AtAnotherScale(event int, scale float64) (float64, bool) {
	e := s.Events[event]
	for _, c := range s.clipsBySite()[place(e)+" "+e.Rule] {
		if c.scale != scale && near(c.threshold, e.Threshold.Value, sameLimit) {
			return c.scale, true
		}
	}
	return 0, false
}

// clipAt is one clip of gradients that carry a scale.
type clipAt struct {
	event            int
	scale            float64
	threshold, norm  float64
	claimed, guessed bool // unit known from calls alone; threshold estimated from numbers
}

// clipsBySite gathers the clips of gradients that carry one known scale, by the
// line that made them.
func (s *Story) clipsBySite() map[string][]clipAt {
	out := map[string][]clipAt{}
	seen := map[int]bool{}
	s.eachPart(func(p *step.Part) {
		for _, w := range p.Words {
			if w.Op.Kind != step.Clip || w.Op.Inert || seen[w.Op.Event] {
				continue
			}
			scale, ok := w.Unit.IsScale()
			e := s.Events[w.Op.Event]
			if !ok || !e.Threshold.Known || !isFinite(e.Threshold.Value) || e.Threshold.Value <= 0 {
				continue
			}
			seen[w.Op.Event] = true
			key := place(e) + " " + e.Rule
			out[key] = append(out[key], clipAt{
				event: w.Op.Event, scale: scale, threshold: e.Threshold.Value, norm: e.Norm.Value,
				claimed: p.Claimed, guessed: e.Inferred,
			})
		}
	})
	for _, clips := range out {
		sortClips(clips)
	}
	return out
}

// eachPart visits the sentence of every part that a step took.
func (s *Story) eachPart(visit func(*step.Part)) {
	for i := range s.Machine.Consumptions {
		c := &s.Machine.Consumptions[i]
		for j := range c.Parts {
			visit(&c.Parts[j])
		}
	}
}

type constant uint8

const (
	untested constant = iota // the scale never moved
	stays                    // in raw numbers
	moves                    // with the scale
	unclear
)

func exactly(guessed bool) float64 {
	if guessed {
		return sameLimit
	}
	return 1e-6
}

// constancy compares a value at neighbouring clips between which the scale moved.
func constancy(clips []clipAt, of func(clipAt) float64, slack func(guessed bool) float64) constant {
	same, scaled, moved := 0, 0, false
	for i := 1; i < len(clips); i++ {
		a, b := clips[i-1], clips[i]
		if a.scale == b.scale {
			continue
		}
		moved = true
		rel := slack(a.guessed || b.guessed)
		switch {
		case near(of(a), of(b), rel):
			same++
		case near(of(a)/a.scale, of(b)/b.scale, rel):
			scaled++
		}
	}
	switch {
	case !moved:
		return untested
	case same > 0 && scaled == 0:
		return stays
	case scaled > 0 && same == 0:
		return moves
	}
	return unclear
}

// normStays reports whether the norm that the clips saw did not move with the
// scale: they saw true gradients. Only asked where calls alone say otherwise.
func normStays(clips []clipAt) bool {
	var asScaled, asTrue float64
	claimed, n := false, 0
	for i := 1; i < len(clips); i++ {
		a, b := clips[i-1], clips[i]
		claimed = claimed || a.claimed || b.claimed
		if a.scale == b.scale || !isFinite(a.norm) || !isFinite(b.norm) || a.norm <= 0 || b.norm <= 0 {
			continue
		}
		moved := math.Log(b.norm / a.norm)
		asTrue += math.Abs(moved)
		asScaled += math.Abs(moved - math.Log(b.scale/a.scale))
		n++
	}
	if !claimed {
		return false
	}
	return n == 0 || asTrue < 2*asScaled
}

func sortClips(clips []clipAt) {
	slices.SortFunc(clips, func(a, b clipAt) int { return a.event - b.event })
}
