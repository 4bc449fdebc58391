package evidence

import (
	"math"

	"ordercheck/step"
)

// ScaleAt is the loss scale of one attempt.
type ScaleAt struct {
	Event   int // the first backward with it
	Attempt step.Maybe[int]
	Scale   float64
	Skipped bool // every optimizer that had its turn skipped, or none had
}

// ScaleHistory lists the scale of each attempt, of the first scaler that the
// attempt's losses met or of the script's own.
func (s *Story) ScaleHistory() (out []ScaleAt) {
	skipped := s.SkippedAttempts()
	for i, e := range s.Events {
		var scale step.Maybe[float64]
		switch {
		case e.Kind == step.ScaleLoss && !s.Off[e.Scaler]:
			scale = e.Scale
		case e.Kind == step.Backward && (s.HandScale || s.MaybeHand):
			scale = e.Factor
		}
		if !scale.Known || len(out) > 0 && out[len(out)-1].Attempt == e.Attempt {
			continue
		}
		out = append(out, ScaleAt{Event: i, Attempt: e.Attempt, Scale: scale.Value})
	}
	for i := range out {
		a := out[i].Attempt
		out[i].Skipped = a.Known && (skipped[a.Value] || !s.SteppedAt(a) && s.OverflowedAt(a, s.Universe.All()))
	}
	return out
}

// LostScaler is a scaler that began anew in mid-run.
type LostScaler struct {
	Event         int
	Attempt       step.Maybe[int]
	Before, After float64
}

// LostScalers finds scalers that took another one's place at their initial
// scale: made after steps were taken, used from then on in place of the other,
// and never loaded.
func (s *Story) LostScalers() (out []LostScaler) {
	last := map[string]float64{} // scale of each scaler after its last use
	used := map[string]int{}     // event of its last use
	for i, e := range s.Events {
		switch e.Kind {
		case step.ScaleLoss, step.UpdateScale:
			if e.Scale.Known && !s.Off[e.Scaler] {
				last[e.Scaler], used[e.Scaler] = e.Scale.Value, i
			}
		case step.ScalerCreate:
			if !e.Scale.Known || len(used) == 0 || s.Off[e.Scaler] {
				continue
			}
			old, at := "", -1
			for id, when := range used {
				if when > at && id != e.Scaler {
					old, at = id, when
				}
			}
			if at < 0 || last[old] == e.Scale.Value || s.usedAfter(old, i) || !s.usedAfter(e.Scaler, i) || s.loadedBeforeUse(e.Scaler, i) {
				continue
			}
			out = append(out, LostScaler{Event: i, Attempt: e.Attempt, Before: last[old], After: e.Scale.Value})
		}
	}
	return out
}

func (s *Story) usedAfter(scaler string, event int) bool {
	for _, e := range s.Events[event+1:] {
		if e.Kind == step.ScaleLoss && e.Scaler == scaler {
			return true
		}
	}
	return false
}

func (s *Story) loadedBeforeUse(scaler string, event int) bool {
	for _, e := range s.Events[event+1:] {
		if e.Scaler != scaler {
			continue
		}
		switch {
		case e.Kind == step.Load, e.Kind == step.UpdateScale && e.GivenNew:
			return true
		case e.Kind == step.ScaleLoss:
			return false
		}
	}
	return false
}

// BlindUpdates are the updates of a scaler before which an optimizer stepped and
// no verdict was taken since the last one; seeing counts those with a verdict.
// An update without any step is the fault of another rule.
func (s *Story) BlindUpdates() (blind []int, seeing int) {
	verdict := map[string]bool{}
	stepped := false
	for i, e := range s.Events {
		if s.Off[e.Scaler] {
			continue
		}
		switch e.Kind {
		case step.Unscale, step.Step:
			stepped = stepped || e.Kind == step.Step
			if e.FoundInf.Known {
				verdict[e.Scaler] = true
			}
		case step.Check:
			for id := range verdict {
				verdict[id] = true
			}
			verdict[""] = true
		case step.UpdateScale:
			switch {
			case verdict[e.Scaler] || verdict[""]:
				seeing++
			case !e.GivenNew && stepped:
				blind = append(blind, i)
			}
			verdict[e.Scaler], verdict[""], stepped = false, false, false
		}
	}
	return blind, seeing
}

// Unmoved are the attempts of a scaler at which a verdict found an overflow and
// after which the scale was the same: nothing had updated it. fell counts those
// after which it was another one.
func (s *Story) Unmoved(scaler string) (still []int, fell int) {
	overflow, at := -1, math.NaN()
	for i, e := range s.Events {
		if e.Scaler != scaler || s.Off[scaler] {
			continue
		}
		switch e.Kind {
		case step.Unscale, step.Step:
			if step.Is(e.FoundInf, true) && overflow < 0 {
				overflow = i
			}
		case step.UpdateScale, step.Load:
			if e.Kind == step.Load || e.GivenNew {
				overflow = -1
			}
			if e.Kind == step.UpdateScale {
				fell++
				overflow = -1
			}
		case step.ScaleLoss:
			if !e.Scale.Known {
				continue
			}
			switch {
			case overflow < 0:
			case e.Scale.Value != at:
				fell++
				overflow = -1
			case s.Events[overflow].Attempt != e.Attempt: // else a loss that was scaled before the update
				still = append(still, overflow)
				overflow = -1
			}
			at = e.Scale.Value
		}
	}
	return still, fell
}
