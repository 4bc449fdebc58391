package evidence

import (
	"math"

	"ordercheck/step"
)

// estimate says which threshold a clip made by hand seems to have had, from
// what it left. The rule is empty where nothing fits.
//
//	global_norm  one coefficient for all; the norm after it is the threshold
//	value        larger elements were cut to it
//	per_tensor   every tensor that was scaled down has the same norm
//	agc          every tensor that was scaled down has the same norm in
//	             proportion to its parameter's: ‖g‖ = λ‖p‖
func (t *teller) estimate(inferred, next *step.Event, a act, move Move) {
	only := move.Only(a.on)
	if len(only) == 0 {
		return
	}
	inferred.Norm = step.Some(only.Before().Norm())
	if _, ok := only.Factor(); ok {
		inferred.Rule, inferred.Threshold = "global_norm", step.Some(only.After().Norm())
		return
	}
	if limit, ok := cutOf(only); ok {
		inferred.Rule, inferred.Threshold = "value", step.Some(limit)
		return
	}
	if limit, ok := common(only, func(i int, c Change) float64 { return c.After.Norm() }); ok {
		inferred.Rule, inferred.Threshold = "per_tensor", step.Some(limit)
		return
	}
	params := t.paramsAt(next)
	if limit, ok := common(only, func(i int, c Change) float64 {
		s, ok := t.book.Stats(params[t.u.Names[i]])
		if !ok {
			return math.NaN()
		}
		return c.After.Norm() / s.Norm()
	}); ok {
		inferred.Rule, inferred.Threshold = "agc", step.Some(limit)
	}
}

// sameLimit is how far apart two estimates of one threshold may lie: norms are
// sums of rounded squares, and coefficients have an ε.
const sameLimit = 1e-4

// common returns the value that all tensors share that were multiplied by less
// than 1; at least two of them are needed.
func common(m Move, of func(int, Change) float64) (limit float64, ok bool) {
	n := 0
	for _, i := range sortedIndices(m) {
		c := m[i]
		f, factor := c.Factor()
		if !factor || f >= 1-c.Format.Slack() {
			continue
		}
		v := of(i, c)
		if n > 0 && !near(v, limit, sameLimit) || math.IsNaN(v) {
			return 0, false
		}
		limit = v
		n++
	}
	return limit, n >= 2
}

// paramsAt are the parameters in force at an event: those of the snapshot
// before this attempt's step, which no call before it moves.
func (t *teller) paramsAt(next *step.Event) Content {
	for i := t.at; i < len(t.rank.Events); i++ {
		e := &t.rank.Events[i]
		if e.Attempt != next.Attempt {
			break
		}
		if e.Kind == step.Step {
			c, _ := t.book.Of(e.Before, "param")
			return c
		}
	}
	return nil
}

// hook looks for a clip inside a backward, which no call and no pair of
// snapshots shows: several tensors end at just the same norm, or at just the
// same largest element, and none lies above it. Alone this proves nothing; the
// threshold that it suggests is tested at two scales. after is nil where nobody
// looked: then the habit of the line counts.
func (t *teller) hook(e *step.Event, after Content, on step.Set) {
	clip := step.Event{
		Seq: e.Seq, Rank: e.Rank, Attempt: e.Attempt, Micro: e.Micro, Kind: step.Clip, Op: step.Clip.String(), Inferred: true,
		File: e.File, Line: e.Line, Recorded: e.Recorded, Inside: "backward",
	}
	if after == nil {
		if !t.habits.hooked(place(e)) {
			return
		}
	} else {
		limit, rule, told := t.signature(after, on)
		if told {
			t.habits.sawHook(place(e), rule != "")
		}
		if rule == "" {
			return
		}
		clip.Rule, clip.Threshold = rule, step.Some(limit)
	}
	index := t.add(&clip)
	t.do(step.Operation{
		Kind: step.Clip, Event: index, Attempt: e.Attempt, On: on, Certain: true, Threshold: t.threshold(index),
	})
}

// signature returns the limit and the kind of a clip whose mark the gradients
// bear. told is false where they are not all finite.
func (t *teller) signature(after Content, on step.Set) (limit float64, rule string, told bool) {
	var norms, maxima []float64
	for _, i := range on.Members() {
		s, ok := t.book.Stats(after[t.u.Names[i]])
		if ok && s.NonFinite > 0 {
			return 0, "", false
		}
		if !ok || s.N < 2 || s.Max == 0 {
			continue
		}
		norms = append(norms, s.Norm())
		maxima = append(maxima, s.Max)
	}
	if limit, ok := plateau(maxima, 0); ok {
		return limit, "value", true
	}
	if limit, ok := plateau(norms, 1e-5); ok {
		return limit, "per_tensor", true
	}
	return 0, "", true
}

// plateau returns the largest value if at least two, and half of all, share it.
func plateau(values []float64, slack float64) (float64, bool) {
	var top float64
	for _, v := range values {
		top = max(top, v)
	}
	n := 0
	for _, v := range values {
		if v >= top*(1-slack) {
			n++
		}
	}
	return top, n >= 2 && 2*n >= len(values)
}

func sqrt(v float64) float64 { return math.Sqrt(v) }
