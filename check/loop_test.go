package check

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"ordercheck/fp16"
	"ordercheck/record"
	"ordercheck/record/safetensors"
)

// loop is a small training loop that is run on numbers and recorded: the
// stories of the rules are written in it. Its gradients are rounded to binary16
// after they were multiplied by the scale, and overflow as they do there.
type loop struct {
	w *record.Writer

	steps    int
	growth   int             // clean steps until the scale doubles; 0: constant
	overflow map[int]bool    // attempts whose gradients are too large for FP16
	look     func(int) bool  // attempts of which snapshots are kept
	calls    map[string]bool // ops that are left out of the record
	scaler   bool            // the script has a scaler; else it scales by hand
	double   bool            // two optimizers
	sgd      bool

	attempt, micro, clean int
	scale                 float64
	grad                  map[string][]float64 // nil: no gradient
	param                 map[string][]float64
	state                 map[string]map[string][]float64 // by parameter, then kind
	loss                  float64
	found                 map[string]*bool // verdict of the unscale, by optimizer
	stop                  bool
}

// params and their optimizers: with one optimizer it owns both.
var loopParams = map[string]int{"w": 48, "b": 16}

func newLoop(dir string) *loop {
	return &loop{
		steps: 6, growth: 2, scale: 65536, scaler: true,
		overflow: map[int]bool{}, calls: map[string]bool{}, look: func(int) bool { return true },
		grad: map[string][]float64{}, param: map[string][]float64{}, state: map[string]map[string][]float64{},
		found: map[string]*bool{},
	}
}

func (l *loop) owned(opt string) []string {
	switch {
	case !l.double:
		return []string{"b", "w"}
	case opt == "0":
		return []string{"w"}
	}
	return []string{"b"}
}

func (l *loop) optimizers() []string {
	if l.double {
		return []string{"0", "1"}
	}
	return []string{"0"}
}

// run records the program, repeated for each attempt, into dir.
func (l *loop) run(dir string, program []string) error {
	autocast := "float16"
	m := record.Manifest{
		WorldSize:  1,
		Source:     record.Source{Framework: "torch", Version: "2.15.0", Script: "train.py"},
		Precision:  record.Precision{Autocast: &autocast},
		Optimizers: map[string]record.Optimizer{},
		Parameters: map[string]record.Parameter{},
	}
	for _, id := range l.optimizers() {
		name := "AdamW"
		if l.sgd {
			name = "SGD"
		}
		m.Optimizers[id] = record.Optimizer{Name: name, Params: l.owned(id), Settings: record.Settings{Betas: []record.Number{0.9, 0.999}}}
	}
	for name, n := range loopParams {
		m.Parameters[name] = record.Parameter{DType: "float32", Shape: []int{n}}
		l.param[name] = make([]float64, n)
		for i := range l.param[name] {
			l.param[name][i] = float64(float32(0.3 * math.Cos(float64(7*i+n))))
		}
	}
	var err error
	if l.w, err = record.NewWriter(dir, m); err != nil {
		return err
	}
	if l.scaler {
		if err := l.event(0, record.Fields{"op": "scaler_create", "scaler": "0", "scale": l.scale, "enabled": true, "step": nil}); err != nil {
			return err
		}
	}
	for l.attempt = 0; l.attempt < l.steps && !l.stop; l.attempt++ {
		l.micro = 0
		if err := l.body(program); err != nil {
			return err
		}
	}
	return l.w.Close()
}

// body runs one attempt; `guard` leaves it.
func (l *loop) body(program []string) error {
	for i, line := range program {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] == "guard" { // the script's own check, which no call shows
			if !l.finite(l.owned("0")) {
				l.scale /= 2
				l.clean = 0
				return nil
			}
			continue
		}
		if strings.HasPrefix(words[0], "@") { // only at these attempts
			if !contains(strings.TrimPrefix(words[0], "@"), l.attempt) {
				continue
			}
			words = words[1:]
		}
		if err := l.do(i+1, words[0], words[1:]); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		if l.stop {
			return nil
		}
	}
	return nil
}

func contains(list string, n int) bool {
	for _, s := range strings.Split(list, ",") {
		if s == strconv.Itoa(n) {
			return true
		}
	}
	return false
}

// do performs one line of the program.
func (l *loop) do(line int, op string, args []string) error {
	opt, number, has := "0", 0.0, map[string]bool{}
	for _, a := range args {
		if id, ok := strings.CutPrefix(a, "opt"); ok {
			opt = id
		} else if v, err := strconv.ParseFloat(a, 64); err == nil {
			number = v
		} else {
			has[a] = true
		}
	}
	before := l.grads()
	f := record.Fields{}
	var after bool
	switch op {
	case "zero":
		for _, p := range l.owned(opt) {
			delete(l.grad, p)
		}
		f, after = record.Fields{"op": "zero_grad", "optimizer": opt, "set_to_none": true}, true
	case "scale":
		l.loss = 2.5
		f = record.Fields{"op": "scale_loss", "scaler": "0", "scale": l.scale, "loss": l.loss, "scaled": l.loss * l.scale}
	case "backward":
		s := l.scale
		if has["unscaled"] {
			s = 1
		}
		on := []string{"b", "w"}
		if has["alone"] {
			on = l.owned(opt)
		}
		for _, p := range on {
			l.add(p, s)
		}
		f, after = record.Fields{"op": "backward", "root": 2.5 * s, "factor": s, "micro": l.micro}, true
		l.micro++
	case "unscale", "divide":
		found := !l.finite(l.owned(opt))
		divisor := l.scale
		if number != 0 {
			divisor = number
		}
		l.multiply(l.owned(opt), 1/divisor)
		if op == "unscale" {
			l.found[opt] = &found
			f, after = record.Fields{"op": "unscale", "scaler": "0", "optimizer": opt, "scale": l.scale, "found_inf": found}, true
		}
	case "norm":
		f = record.Fields{"op": "norm", "value": l.norm(l.covers(opt, has)), "norm_type": 2.0, "covers": l.covers(opt, has)}
	case "clip", "shrink", "cut":
		threshold := number
		if has["scaled"] {
			threshold *= l.scale
		}
		on := l.covers(opt, has)
		norm := l.norm(on)
		if op == "cut" {
			l.cut(on, threshold)
		} else {
			l.multiply(on, float64(float32(math.Min(1, threshold/(norm+1e-6)))))
		}
		if op == "clip" {
			f, after = record.Fields{"op": "clip", "rule": "global_norm", "threshold": threshold, "norm_type": 2.0, "norm": norm,
				"covers": on, "n_tensors": len(on), "micro": max(l.micro-1, 0)}, true
		}
	case "mute": // the script zeroes what is not finite
		for _, g := range l.grad {
			for i, v := range g {
				if math.IsInf(v, 0) || math.IsNaN(v) {
					g[i] = 0
				}
			}
		}
	case "step":
		return l.step(line, opt, has)
	case "decay": // moves the moments behind everybody's back
		for _, s := range l.state {
			for i := range s["exp_avg"] {
				s["exp_avg"][i] = float64(float32(0.9 * s["exp_avg"][i]))
			}
		}
	case "update":
		previous := l.scale
		l.updateScale()
		l.found = map[string]*bool{}
		f = record.Fields{"op": "update_scale", "scaler": "0", "scale": l.scale, "previous": previous}
	case "grow": // the script moves its own scale
		l.scale *= 2
	case "error":
		l.stop = true
		f = record.Fields{"op": "error", "during": args[0], "scaler": "0", "optimizer": "0", "type": "RuntimeError", "text": strings.Join(args[1:], " ")}
	default:
		return fmt.Errorf("no operation %q", op)
	}
	if f["op"] == nil || l.calls[op] {
		return nil
	}
	if l.look(l.attempt) && op != "scale" && op != "norm" && op != "update" && op != "error" {
		if err := l.snapshot(f, "before", before); err != nil {
			return err
		}
		if after {
			if err := l.snapshot(f, "after", l.grads()); err != nil {
				return err
			}
		}
	}
	return l.event(line, f)
}

func (l *loop) covers(opt string, has map[string]bool) []string {
	if has["all"] {
		return []string{"b", "w"}
	}
	return l.owned(opt)
}

// step consumes the gradients of an optimizer: through the scaler, which
// unscales unless that was done, and skips; fused; or direct.
func (l *loop) step(line int, opt string, has map[string]bool) error {
	on := l.owned(opt)
	skip := false
	f := record.Fields{"op": "step", "optimizer": opt, "via": "optimizer", "called": true, "applied": true, "lr": 0.01}
	if !has["direct"] {
		if l.found[opt] == nil && !has["fused"] {
			found, before := !l.finite(on), l.grads()
			l.multiply(on, 1/l.scale)
			l.found[opt] = &found
			u := record.Fields{"op": "unscale", "scaler": "0", "optimizer": opt, "scale": l.scale, "found_inf": found, "implicit": true}
			if l.look(l.attempt) {
				if err := l.snapshot(u, "before", before); err != nil {
					return err
				}
				if err := l.snapshot(u, "after", l.grads()); err != nil {
					return err
				}
			}
			if !l.calls["unscale"] {
				if err := l.event(line, u); err != nil {
					return err
				}
			}
		}
		if has["fused"] {
			skip = !l.finite(on)
			f["fused"], f["grad_scale"] = true, l.scale
			if l.found[opt] != nil {
				delete(f, "grad_scale")
			}
		} else {
			skip = *l.found[opt]
		}
		l.found[opt] = &skip
		f["via"], f["scaler"], f["found_inf"], f["called"], f["applied"] = "scaler", "0", skip, !skip || has["fused"], !skip
	}
	before, stateBefore := l.grads(), l.states(on)
	if has["fused"] && f["grad_scale"] != nil && !skip {
		l.multiply(on, 1/l.scale)
	}
	if !skip {
		l.consume(on)
	}
	if skip && has["counts"] { // a custom optimizer that moves its step count
		for _, p := range on {
			if s := l.state[p]; s != nil {
				s["step"][0]++
			}
		}
	}
	if l.calls["step"] {
		return nil
	}
	if l.look(l.attempt) {
		if err := l.snapshot(f, "before", append(before, stateBefore...)); err != nil {
			return err
		}
		if err := l.snapshot(f, "after", append(l.grads(), l.states(on)...)); err != nil {
			return err
		}
	}
	return l.event(line, f)
}

// consume is AdamW, or SGD with momentum 0.9, in float32.
func (l *loop) consume(on []string) {
	for _, p := range on {
		g := l.grad[p]
		if g == nil {
			continue
		}
		s := l.state[p]
		if s == nil {
			s = map[string][]float64{"exp_avg": make([]float64, len(g)), "exp_avg_sq": make([]float64, len(g)), "step": {0}}
			if l.sgd {
				s = map[string][]float64{"momentum_buffer": make([]float64, len(g))}
			}
			l.state[p] = s
		}
		if !l.sgd {
			s["step"][0]++
		}
		for i := range g {
			if l.sgd {
				b := float64(float32(0.9*s["momentum_buffer"][i] + g[i]))
				s["momentum_buffer"][i] = b
				l.param[p][i] = float64(float32(l.param[p][i] - 0.01*b))
				continue
			}
			m := float64(float32(0.9*s["exp_avg"][i] + 0.1*g[i]))
			v := float64(float32(0.999*s["exp_avg_sq"][i] + 0.001*g[i]*g[i]))
			s["exp_avg"][i], s["exp_avg_sq"][i] = m, v
			t := s["step"][0]
			l.param[p][i] = float64(float32(l.param[p][i] - 0.01*(m/(1-math.Pow(0.9, t)))/(math.Sqrt(v/(1-math.Pow(0.999, t)))+1e-8)))
		}
	}
}

func (l *loop) updateScale() {
	for _, found := range l.found {
		if found != nil && *found {
			l.scale, l.clean = l.scale/2, 0
			return
		}
	}
	if l.clean++; l.growth > 0 && l.clean == l.growth {
		l.scale, l.clean = l.scale*2, 0
	}
}

// add is a backward: the true gradient times the scale, rounded to binary16.
func (l *loop) add(p string, scale float64) {
	n := loopParams[p]
	if l.grad[p] == nil {
		l.grad[p] = make([]float64, n)
	}
	for i := range l.grad[p] {
		g := 0.5*math.Sin(float64(1+i*i+13*l.attempt+5*l.micro+n)) + 0.01
		if l.overflow[l.attempt] && (!l.double || p == "w") {
			g *= 1e6
		}
		scaled := float64(fp16.HalfFromFloat64(g*scale/256).Float32()) * 256 // as a layer whose gradient is 256 times smaller
		l.grad[p][i] = float64(float32(l.grad[p][i] + scaled))
	}
}

func (l *loop) multiply(on []string, c float64) {
	for _, p := range on {
		for i, v := range l.grad[p] {
			l.grad[p][i] = float64(float32(v * c))
		}
	}
}

func (l *loop) cut(on []string, limit float64) {
	for _, p := range on {
		for i, v := range l.grad[p] {
			l.grad[p][i] = float64(float32(math.Max(-limit, math.Min(limit, v))))
		}
	}
}

func (l *loop) norm(on []string) float64 {
	var s float64
	for _, p := range on {
		for _, v := range l.grad[p] {
			s += v * v
		}
	}
	return float64(float32(math.Sqrt(s)))
}

func (l *loop) finite(on []string) bool {
	n := l.norm(on)
	return !math.IsInf(n, 0) && !math.IsNaN(n)
}

func (l *loop) grads() (out []safetensors.Entry) {
	for _, p := range []string{"b", "w"} {
		if g := l.grad[p]; g != nil {
			out = append(out, f32("grad/"+p, g))
		}
	}
	return out
}

func (l *loop) states(on []string) (out []safetensors.Entry) {
	for _, p := range on {
		out = append(out, f32("param/"+p, l.param[p]))
		for kind, v := range l.state[p] {
			out = append(out, f32(kind+"/"+p, v))
		}
	}
	return out
}

func f32(name string, v []float64) safetensors.Entry {
	elems := make([]float32, len(v))
	for i := range v {
		elems[i] = float32(v[i])
	}
	return safetensors.F32(name, []int{len(v)}, elems)
}

func (l *loop) snapshot(f record.Fields, side string, tensors []safetensors.Entry) error {
	if len(tensors) == 0 {
		f[side] = []string{}
		return nil
	}
	name, err := l.w.Snapshot(tensors)
	f[side] = name
	return err
}

func (l *loop) event(line int, f record.Fields) error {
	if line > 0 {
		f["line"] = line
	}
	if _, ok := f["step"]; !ok {
		f["step"] = l.attempt
	}
	return l.w.Event(0, f)
}

// onlyTensors makes a run of the snapshots alone, in the order of the calls.
func onlyTensors(dir string) (*record.Run, error) {
	fsys := os.DirFS(dir)
	run, err := record.ReadRecording(fsys)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range run.Ranks[0].Events {
		for _, files := range [][]string{e.Before.Files, e.After.Files} {
			for _, f := range files {
				if n := len(names); n == 0 || names[n-1] != f {
					names = append(names, f)
				}
			}
		}
	}
	return record.ReadTensors(fsys, names, true, true)
}
