package evidence

import (
	"fmt"
	"math"
	"testing"

	"ordercheck/record"
	"ordercheck/step"
)

// The test at two scales: a constant is compared at neighbouring clips between
// which the scale moved.
func TestConstancy(t *testing.T) {
	at := func(pairs ...float64) (clips []clipAt) {
		for i := 0; i < len(pairs); i += 2 {
			clips = append(clips, clipAt{event: i, scale: pairs[i], threshold: pairs[i+1]})
		}
		return clips
	}
	for _, c := range []struct {
		name  string
		clips []clipAt
		want  constant
	}{
		{"no clip", nil, untested},
		{"one clip", at(8, 1), untested},
		{"the scale never moved", at(8, 1, 8, 1, 8, 2), untested},
		{"the same", at(8, 1, 16, 1), stays},
		{"the same, up and down", at(8, 1, 16, 1, 16, 1, 8, 1, 4, 1), stays},
		{"scaled", at(8, 8, 16, 16), moves},
		{"scaled, up and down", at(8, 8, 16, 16, 16, 16, 8, 8, 2, 2), moves},
		{"scaled, another unit", at(65536, 19660.8, 131072, 39321.6), moves},
		{"a schedule changes it in mid-run, while the scale stands", at(8, 1, 16, 1, 16, 0.3, 32, 0.3), stays},
		{"a schedule changes a scaled one", at(8, 8, 16, 16, 16, 4.8, 32, 9.6), moves},
		{"a schedule changes it just as the scale moves", at(8, 1, 16, 0.3), unclear},
		{"a schedule changes it just as the scale moves, and then it stays", at(8, 1, 16, 0.3, 32, 0.3), stays},
		{"it halves as the scale doubles", at(8, 1, 16, 0.5), unclear},
		{"once the same, once scaled", at(8, 1, 16, 1, 32, 2), unclear},
		{"rounded", at(8, 1, 16, 1+5e-7), stays},
		{"off by more than rounding", at(8, 1, 16, 1+5e-6), unclear},
		{"scaled and rounded", at(8, 8, 16, 16*(1-5e-7)), moves},
	} {
		if got := constancy(c.clips, func(c clipAt) float64 { return c.threshold }, exactly); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	// What was estimated from numbers is compared less closely.
	clips := at(8, 1, 16, 1+5e-5)
	for i := range clips {
		clips[i].guessed = true
		if got, want := constancy(clips, func(c clipAt) float64 { return c.threshold }, exactly), stays; got != want {
			t.Errorf("estimated: %d", got)
		}
	}
	clips[1].threshold = 1 + 5e-4
	if got := constancy(clips, func(c clipAt) float64 { return c.threshold }, exactly); got != unclear {
		t.Errorf("estimated, and off: %d", got)
	}
}

// The norm that the clips saw tells whether the gradients carried the scale,
// where only calls say that they did.
func TestNormStays(t *testing.T) {
	at := func(claimed bool, pairs ...float64) (clips []clipAt) {
		for i := 0; i < len(pairs); i += 2 {
			clips = append(clips, clipAt{scale: pairs[i], norm: pairs[i+1], claimed: claimed})
		}
		return clips
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		name  string
		clips []clipAt
		want  bool
	}{
		{"it stays, but numbers say that the gradients are scaled", at(false, 8, 3, 16, 3), false},
		{"it stays", at(true, 8, 3, 16, 3), true},
		{"it stays, roughly", at(true, 65536, 3, 131072, 2.5, 65536, 3.5), true},
		{"it moves with the scale", at(true, 8, 24, 16, 48, 8, 24), false},
		{"it moves with the scale, roughly", at(true, 65536, 3, 131072, 5.5, 65536, 3.5, 1024, 0.05), false},
		{"the scale stands", at(true, 8, 3, 8, 3), true},
		{"it is not finite", at(true, 8, inf, 16, 3, 32, math.NaN()), true},
		{"nothing is known of it", at(true, 8, 0, 16, 0), true},
	} {
		if got := normStays(c.clips); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The units of thresholds in a told story, by the words of a loop whose scale
// doubles at each attempt.
func TestThresholdUnits(t *testing.T) {
	for _, c := range []struct {
		name      string
		threshold func(scale float64, attempt int) float64
		still     bool // the scale stands
		maxNorm   float64
		norm      float64 // of true gradients; negative: what was seen is true
		want      string
	}{
		{name: "true thresholds", threshold: func(s float64, _ int) float64 { return 1 }, want: "1 1 1"},
		{name: "scaled ones", threshold: func(s float64, _ int) float64 { return s }, want: "8 16 32"},
		{name: "unclear", threshold: func(s float64, i int) float64 { return float64(3 + 5*i) }, want: "unknown unknown unknown"},
		{name: "untested", threshold: func(s float64, _ int) float64 { return 1 }, still: true, want: "unknown unknown unknown"},
		{name: "untested, declared", threshold: func(s float64, _ int) float64 { return 1 }, still: true, maxNorm: 1, want: "1 1 1"},
		{name: "untested, declared, and scaled", threshold: func(s float64, _ int) float64 { return s }, still: true, maxNorm: 1, want: "8 8 8"},
		{name: "untested, and another is declared", threshold: func(s float64, _ int) float64 { return 5 }, still: true, maxNorm: 1, want: "unknown unknown unknown"},
		{name: "declared, but the test decides", threshold: func(s float64, _ int) float64 { return s }, maxNorm: 8, want: "8 16 32"},
		{name: "unclear, declared", threshold: func(s float64, i int) float64 { return float64(3 + 5*i) }, maxNorm: 3, want: "unknown unknown unknown"},
		{name: "infinite", threshold: func(s float64, _ int) float64 { return math.Inf(1) }, want: "unknown unknown unknown"},
		{name: "true norms", threshold: func(s float64, _ int) float64 { return 1 }, norm: -3, want: "unknown unknown unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := newTape(t)
			tape.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"w"}}}
			scale := 8.0
			for i := range 3 {
				seen := 3 * scale
				if c.norm < 0 {
					seen = -c.norm
				}
				tape.event(i, "scale_loss", record.Fields{"scaler": "0", "scale": scale, "scaled": scale})
				tape.event(i, "backward", record.Fields{"root": scale, "line": 4})
				tape.event(i, "clip", record.Fields{"rule": "global_norm", "threshold": c.threshold(scale, i), "norm": seen, "line": 5})
				tape.event(i, "step", record.Fields{"via": "scaler", "scaler": "0", "optimizer": "0", "called": true, "line": 6})
				if !c.still {
					scale *= 2
				}
				tape.event(i, "update_scale", record.Fields{"scaler": "0", "scale": scale, "line": 7})
			}
			declared := Declared{}
			if c.maxNorm != 0 {
				declared.MaxNorm = step.Some(c.maxNorm)
			}
			s := tape.storyOf(tape.run(), declared)
			got := ""
			for _, consumption := range s.Machine.Consumptions {
				for _, w := range consumption.Parts[0].Words {
					if w.Op.Kind == step.Clip {
						got += fmt.Sprintf(" %v", w.Op.Threshold)
					}
				}
			}
			if got != " "+c.want {
				t.Errorf("units%s, want %s", got, c.want)
			}
		})
	}
}
