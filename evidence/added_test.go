package evidence

import (
	"testing"

	"ordercheck/record"
)

// What is added to scaled gradients between two calls is told; a recorded clip is
// a clip, also where nobody looked just before it.
func TestAddedTerms(t *testing.T) {
	const n = 30
	for _, c := range []struct {
		name  string
		op    string
		looks bool // gradients were looked at after the backward
		terms int
	}{
		{"a value clip, looked at before", "clip", true, 0},
		{"a value clip, not looked at before", "clip", false, 0},
		{"a recorded grad_op", "grad_op", true, 3},
		{"a recorded grad_op, not looked at before", "grad_op", false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := newTape(t)
			tape.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"w"}}}
			for i := range 3 {
				scale := float64(int(1024) << i)
				g := times(gradient(n, 1), scale)
				before, after := tape.snapshot(tensors{"grad/w": g}), tape.snapshot(tensors{"grad/w": limited(g, float32(scale))})
				tape.event(i, "scale_loss", record.Fields{"scaler": "0", "scale": scale, "scaled": scale, "line": 3})
				backward := record.Fields{"root": scale, "line": 4}
				if c.looks {
					backward["before"], backward["after"] = []string{}, before
				}
				tape.event(i, "backward", backward)
				tape.event(i, c.op, record.Fields{"rule": "value", "threshold": scale, "line": 5, "before": before, "after": after})
				tape.event(i, "step", record.Fields{"via": "scaler", "scaler": "0", "optimizer": "0", "called": true, "line": 6})
			}
			found := 0
			for _, place := range tape.story().AddedTerms() {
				found += len(place)
			}
			if found != c.terms {
				t.Errorf("%d terms were added, want %d", found, c.terms)
			}
		})
	}
}
