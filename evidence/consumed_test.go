package evidence

import (
	"math"
	"slices"
	"testing"

	"ordercheck/record"
	"ordercheck/step"
)

// optimizer is a reference in float32 of what PyTorch's optimizers do, of their
// state as it is kept; it says nothing of speed.
type optimizer interface {
	step(p, g []float32)
	state(param string) tensors
}

// adamw: decoupled decay, bias corrections as in PyTorch; the first moment moves
// by interpolation, m + (g − m)·(1 − β1).
type adamw struct {
	lr, beta1, beta2, eps, decay float32
	n                            float32
	m, v                         []float32
}

func (o *adamw) step(p, g []float32) {
	if o.m == nil {
		o.m, o.v = make([]float32, len(p)), make([]float32, len(p))
	}
	o.n++
	c1 := 1 - float32(math.Pow(float64(o.beta1), float64(o.n)))
	c2 := 1 - float32(math.Pow(float64(o.beta2), float64(o.n)))
	for i := range p {
		p[i] -= float32(o.lr * o.decay * p[i])
		o.m[i] += float32((g[i] - o.m[i]) * (1 - o.beta1))
		o.v[i] = float32(o.beta2*o.v[i]) + float32(float32((1-o.beta2)*g[i])*g[i])
		p[i] -= o.lr / c1 * o.m[i] / (float32(math.Sqrt(float64(o.v[i]/c2))) + o.eps)
	}
}

func (o *adamw) state(param string) tensors {
	if o.m == nil {
		return tensors{}
	}
	return tensors{"exp_avg/" + param: slices.Clone(o.m), "exp_avg_sq/" + param: slices.Clone(o.v), "step/" + param: {o.n}}
}

// sgd with momentum: the first buffer is the gradient itself, whatever the dampening.
type sgd struct {
	lr, momentum, dampening, decay float32
	b                              []float32
}

func (o *sgd) step(p, g []float32) {
	first := o.b == nil
	if first {
		o.b = make([]float32, len(p))
	}
	for i := range p {
		d := g[i] + float32(o.decay*p[i])
		if first {
			o.b[i] = d
		} else {
			o.b[i] = float32(o.momentum*o.b[i]) + float32((1-o.dampening)*d)
		}
		p[i] -= o.lr * o.b[i]
	}
}

func (o *sgd) state(param string) tensors {
	if o.b == nil {
		return tensors{}
	}
	return tensors{"momentum_buffer/" + param: slices.Clone(o.b)}
}

func number(v float64) *record.Number { n := record.Number(v); return &n }

// The gradient that an optimizer took follows from its states: its norm to 1e-5,
// its direction, and so the number that lies between it and what stood in the buffer.
func TestConsumed(t *testing.T) {
	const n, steps = 200, 6
	plain := record.Settings{}
	for _, c := range []struct {
		name     string
		opt      func() optimizer
		settings record.Settings
		shown    float64 // the buffer held this many times what was taken
		cosine   float64 // at most, 1 if not given
	}{
		{name: "AdamW", opt: func() optimizer { return &adamw{lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01} },
			settings: record.Settings{Betas: []record.Number{0.9, 0.999}}},
		{name: "AdamW, settings not known", opt: func() optimizer { return &adamw{lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8} }, settings: plain},
		{name: "AdamW, other betas", opt: func() optimizer { return &adamw{lr: 1e-3, beta1: 0.95, beta2: 0.98, eps: 1e-8} },
			settings: record.Settings{Betas: []record.Number{0.95, 0.98}}},
		{name: "AdamW, scaled gradients shown", opt: func() optimizer { return &adamw{lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8} },
			settings: record.Settings{Betas: []record.Number{0.9, 0.999}}, shown: 65536},
		{name: "SGD with momentum", opt: func() optimizer { return &sgd{lr: 0.1, momentum: 0.9} },
			settings: record.Settings{Momentum: number(0.9), Dampening: number(0)}},
		{name: "SGD, settings not known", opt: func() optimizer { return &sgd{lr: 0.1, momentum: 0.9} }, settings: plain},
		{name: "SGD with dampening", opt: func() optimizer { return &sgd{lr: 0.1, momentum: 0.8, dampening: 0.5} },
			settings: record.Settings{Momentum: number(0.8), Dampening: number(0.5)}},
		{name: "SGD, clipped gradients shown not", opt: func() optimizer { return &sgd{lr: 0.1, momentum: 0.9} },
			settings: record.Settings{Momentum: number(0.9)}, shown: 1 / 0.3},
		{name: "SGD with coupled decay", opt: func() optimizer { return &sgd{lr: 0.1, momentum: 0.9, decay: 0.5} },
			settings: record.Settings{Momentum: number(0.9), WeightDecay: number(0.5)}, cosine: 0.999},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.shown == 0 {
				c.shown = 1
			}
			tape := newTape(t)
			manifest := record.Optimizer{Name: c.name, Params: []string{"w"}, Settings: c.settings}
			tape.manifest.Optimizers = map[string]record.Optimizer{"0": manifest}
			opt, p := c.opt(), gradient(n, 99)
			for i := range steps {
				g := gradient(n, i)
				buffer := tensors{"grad/w": times(g, c.shown)}
				tape.event(i, "backward", record.Fields{"before": []string{}, "after": tape.snapshot(buffer)})
				before := tape.snapshot(buffer.add(opt.state("w"), tensors{"param/w": slices.Clone(p)}))
				opt.step(p, g)
				after := tape.snapshot(opt.state("w").add(tensors{"param/w": slices.Clone(p)}))
				tape.event(i, "step", record.Fields{"optimizer": "0", "via": "optimizer", "called": true, "applied": true, "before": before, "after": after})
			}
			s := tape.story()
			if len(s.Machine.Consumptions) != steps {
				t.Fatalf("%d steps took something", len(s.Machine.Consumptions))
			}
			for i := range s.Machine.Consumptions {
				factor, cosine, ok := s.Consumed(&s.Machine.Consumptions[i], s.Universe.All(), manifest)
				if !ok {
					t.Fatalf("step %d: nothing can be said", i)
				}
				if c.cosine != 0 {
					if cosine > c.cosine {
						t.Errorf("step %d: cosine %.6f", i, cosine)
					}
					continue
				}
				if math.Abs(factor*c.shown-1) > 1e-5 || cosine < 1-1e-9 {
					t.Errorf("step %d: took %.7f of what was shown times %g, cosine 1 - %.2g", i, factor*c.shown, 1/c.shown, 1-cosine)
				}
			}
		})
	}
}

// Nothing is said where a side is missing, shapes differ, or nothing is finite.
func TestConsumedNeedsBothSides(t *testing.T) {
	param := tensors{"param/w": {5, 5}}
	grad, state := tensors{"grad/w": {1, 2}}.add(param), tensors{"exp_avg/w": {0.1, 0.2}}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name          string
		before, after tensors
		factor        float64
		ok            bool
	}{
		{"both", grad, state, 1, true},
		{"no gradients", param, state, 0, false},
		{"no state after", grad, param, 0, false},
		{"nobody looked for a state before", tensors{"grad/w": {1, 2}}, state, 0, false},
		{"of another parameter", grad, tensors{"exp_avg/v": {0.1, 0.2}}, 0, false},
		{"other shapes", grad, tensors{"exp_avg/w": {0.1, 0.2, 0.3}}, 0, false},
		{"another shape before", grad.add(tensors{"exp_avg/w": {0}}), state, 0, false},
		{"no finite gradient", tensors{"grad/w": {nan, nan}}.add(param), state, 0, false},
		{"one finite element", tensors{"grad/w": {1, nan}}.add(param), tensors{"exp_avg/w": {0.3, 7}}, 3, true},
		{"zeros", tensors{"grad/w": {0, 0}}.add(param), state, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := newTape(t)
			tape.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"w"}}}
			tape.event(0, "backward", nil)
			tape.event(0, "step", record.Fields{"optimizer": "0", "before": tape.snapshot(c.before), "after": tape.snapshot(c.after)})
			s := tape.story()
			factor, _, ok := s.Consumed(&s.Machine.Consumptions[0], step.SetOf(0), record.Optimizer{})
			if ok != c.ok || math.Abs(factor-c.factor) > 1e-6 {
				t.Errorf("factor %g, %v", factor, ok)
			}
		})
	}
}
