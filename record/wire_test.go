package record

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"pgregory.net/rapid"

	"ordercheck/step"
)

// Each field of an event, by the format's name. The writer knows no events, only
// fields: this is its other half, for tests.
var (
	reals = map[string]func(*step.Event) *step.Maybe[float64]{
		"scale":      func(e *step.Event) *step.Maybe[float64] { return &e.Scale },
		"previous":   func(e *step.Event) *step.Maybe[float64] { return &e.Previous },
		"loss":       func(e *step.Event) *step.Maybe[float64] { return &e.Loss },
		"scaled":     func(e *step.Event) *step.Maybe[float64] { return &e.Scaled },
		"root":       func(e *step.Event) *step.Maybe[float64] { return &e.Root },
		"factor":     func(e *step.Event) *step.Maybe[float64] { return &e.Factor },
		"norm":       func(e *step.Event) *step.Maybe[float64] { return &e.Norm },
		"norm_type":  func(e *step.Event) *step.Maybe[float64] { return &e.NormType },
		"threshold":  func(e *step.Event) *step.Maybe[float64] { return &e.Threshold },
		"grad_scale": func(e *step.Event) *step.Maybe[float64] { return &e.GradScale },
		"value":      func(e *step.Event) *step.Maybe[float64] { return &e.Value },
	}
	integers = map[string]func(*step.Event) *step.Maybe[int]{
		"step":           func(e *step.Event) *step.Maybe[int] { return &e.Attempt },
		"micro":          func(e *step.Event) *step.Maybe[int] { return &e.Micro },
		"growth_tracker": func(e *step.Event) *step.Maybe[int] { return &e.GrowthTracker },
		"n_tensors":      func(e *step.Event) *step.Maybe[int] { return &e.NTensors },
	}
	maybes = map[string]func(*step.Event) *step.Maybe[bool]{
		"enabled":     func(e *step.Event) *step.Maybe[bool] { return &e.Enabled },
		"found_inf":   func(e *step.Event) *step.Maybe[bool] { return &e.FoundInf },
		"called":      func(e *step.Event) *step.Maybe[bool] { return &e.Called },
		"applied":     func(e *step.Event) *step.Maybe[bool] { return &e.Applied },
		"set_to_none": func(e *step.Event) *step.Maybe[bool] { return &e.SetToNone },
	}
	flags = map[string]func(*step.Event) *bool{
		"implicit":   func(e *step.Event) *bool { return &e.Implicit },
		"fused":      func(e *step.Event) *bool { return &e.Fused },
		"norm_given": func(e *step.Event) *bool { return &e.NormGiven },
		"given":      func(e *step.Event) *bool { return &e.GivenNew },
	}
	texts = map[string]func(*step.Event) *string{
		"file":      func(e *step.Event) *string { return &e.File },
		"scaler":    func(e *step.Event) *string { return &e.Scaler },
		"optimizer": func(e *step.Event) *string { return &e.Optimizer },
		"via":       func(e *step.Event) *string { return &e.Via },
		"rule":      func(e *step.Event) *string { return &e.Rule },
		"what":      func(e *step.Event) *string { return &e.What },
		"kind":      func(e *step.Event) *string { return &e.Mode },
		"inside":    func(e *step.Event) *string { return &e.Inside },
		"during":    func(e *step.Event) *string { return &e.During },
		"type":      func(e *step.Event) *string { return &e.ErrorType },
		"text":      func(e *step.Event) *string { return &e.Text },
		"key":       func(e *step.Event) *string { return &e.Key },
	}
	snapshots = map[string]func(*step.Event) *step.Snapshot{
		"before": func(e *step.Event) *step.Snapshot { return &e.Before },
		"after":  func(e *step.Event) *step.Snapshot { return &e.After },
	}
)

// fieldsOf is what a recorder would hand to the writer to record e.
func fieldsOf(e *step.Event) Fields {
	f := Fields{"op": e.Op, "line": e.Line}
	for name, of := range reals {
		if v := of(e); v.Known {
			f[name] = v.Value
		}
	}
	for name, of := range integers {
		if v := of(e); v.Known {
			f[name] = v.Value
		}
	}
	for name, of := range maybes {
		if v := of(e); v.Known {
			f[name] = v.Value
		}
	}
	for name, of := range flags {
		f[name] = *of(e)
	}
	for name, of := range texts {
		f[name] = *of(e)
	}
	for name, of := range snapshots {
		s := of(e)
		switch {
		case !s.Looked:
		case s.Summary != nil:
			f[name+"_summary"] = summaryFields(s.Summary)
			if s.Files != nil {
				f[name] = s.Files
			}
		default:
			f[name] = append([]string{}, s.Files...)
		}
	}
	switch len(e.LR) {
	case 0:
	case 1:
		f["lr"] = e.LR[0]
	default:
		f["lr"] = e.LR
	}
	if e.Covers.Known {
		f["covers"] = append([]string{}, e.Covers.Value...)
	}
	for _, name := range e.Unread {
		f[name] = "not known"
	}
	return f
}

func summaryFields(summary map[string]step.Summary) map[string]any {
	out := map[string]any{}
	for tensor, s := range summary {
		samples := [][2]Number{}
		for _, x := range s.Sample {
			samples = append(samples, [2]Number{Number(x.Index), Number(x.Value)})
		}
		out[tensor] = Fields{"n": s.N, "nonfinite": s.NonFinite, "max": Number(s.Max), "sumsq": Number(s.SumSq), "sample": samples}
	}
	return out
}

// Drawn values: numbers with all that is not finite among them, and text.
var (
	drawReal    = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, 65536, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, 0x1p-1074}))
	drawInteger = rapid.OneOf(rapid.IntRange(-3, 1000), rapid.SampledFrom([]int{1 << 53, -1 << 53}))
	drawText    = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "NaN", "inf", "-Infinity", `"`, `\`, "\u2028", "日本", "w.0"}))
	drawFile    = rapid.SampledFrom([]string{"tensors/a.safetensors", "b", "tensors/日本.safetensors", "x/y/z"})
	drawSummary = rapid.Custom(func(t *rapid.T) step.Summary {
		s := step.Summary{N: drawInteger.Draw(t, "n"), NonFinite: drawInteger.Draw(t, "nonfinite"), Max: drawReal.Draw(t, "max"), SumSq: drawReal.Draw(t, "sumsq")}
		for range rapid.IntRange(0, 2).Draw(t, "samples") {
			s.Sample = append(s.Sample, step.Sample{Index: drawInteger.Draw(t, "index"), Value: drawReal.Draw(t, "value")})
		}
		return s
	})
)

// drawEvent draws any event, as a reader gives it.
var drawEvent = rapid.Custom(func(t *rapid.T) step.Event {
	e := step.Event{
		Op:   rapid.OneOf(rapid.Map(rapid.IntRange(1, int(step.Note)), func(k int) string { return step.Kind(k).String() }), drawText).Draw(t, "op"),
		Line: drawInteger.Draw(t, "line"),
		LR:   slices.Clip(rapid.SliceOfN(drawReal, 0, 3).Draw(t, "lr")),
	}
	e.Kind = step.KindOf(e.Op)
	some := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name+"?") == 3 }
	for _, name := range slices.Sorted(maps.Keys(reals)) {
		if some(name) {
			*reals[name](&e) = step.Some(drawReal.Draw(t, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(integers)) {
		if some(name) {
			*integers[name](&e) = step.Some(drawInteger.Draw(t, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(maybes)) {
		if some(name) {
			*maybes[name](&e) = step.Some(rapid.Bool().Draw(t, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		*flags[name](&e) = some(name)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if some(name) {
			*texts[name](&e) = drawText.Draw(t, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(snapshots)) {
		s := snapshots[name](&e)
		if s.Looked = some(name); s.Looked {
			s.Files = rapid.SliceOfN(drawFile, 0, 3).Draw(t, name)
			if some(name + "_summary") {
				s.Summary = rapid.MapOfN(drawText, drawSummary, 0, 2).Draw(t, name+"_summary")
			}
		}
	}
	if some("covers") {
		e.Covers = step.Some(rapid.SliceOfN(drawText, 0, 3).Draw(t, "covers"))
	}
	if some("unread") {
		e.Unread = []string{"aura", "zeal"}
	}
	return e
})

// spelled writes out an event. Two events are the same if it is: NaN is NaN, and
// an empty list is none.
func spelled(e step.Event) string {
	e.Recorded = step.Position{}
	return fmt.Sprintf("%+v", e)
}
