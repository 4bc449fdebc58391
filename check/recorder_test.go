package check

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"

	"ordercheck/fp16"
	"ordercheck/record"
	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// How the loops of the stories are recorded.

func (l *loop) world() int {
	if l.shards || l.apart {
		return 2
	}
	return 1
}

func (l *loop) manifest() record.Manifest {
	autocast := "float16"
	if l.bf16 {
		autocast = "bfloat16"
	}
	m := record.Manifest{
		WorldSize:  l.world(),
		Source:     record.Source{Framework: "torch", Version: "2.15.0", Script: "train.py"},
		Precision:  record.Precision{Autocast: &autocast},
		Optimizers: map[string]record.Optimizer{},
		Parameters: map[string]record.Parameter{},
	}
	o := record.Optimizer{Name: "AdamW", Settings: record.Settings{Betas: []record.Number{0.9, 0.999}}}
	if l.sgd {
		momentum := record.Number(0.9)
		if l.plain {
			momentum = 0
		}
		o = record.Optimizer{Name: "SGD", Settings: record.Settings{Momentum: &momentum}}
	}
	if l.custom {
		o.Name = "OurOwn"
	}
	if l.eps != 0 {
		eps := record.Number(l.eps)
		o.Settings.Eps = &eps
	}
	if l.perUpdate {
		m.Declared.Schedule = "per_update"
	}
	if l.policy {
		m.Scalers = map[string]record.Scaler{"0": {Policy: "torch.GradScaler", InitScale: record.Number(l.scale),
			GrowthFactor: 2, BackoffFactor: 0.5, GrowthInterval: float64(l.growth)}}
	}
	o.Params = l.owned("0")
	if l.shards {
		o.Params, o.ParamsByRank = nil, map[string][]string{"0": {"w"}, "1": {"b"}}
	}
	m.Optimizers["0"] = o
	if l.resumed {
		first := "0"
		o.Continues = &first
		m.Optimizers["1"] = o
	}
	if l.double {
		o.Params = l.owned("1")
		m.Optimizers["1"] = o
	}
	for _, p := range []string{"b", "w"} {
		m.Parameters[p] = record.Parameter{DType: "float32", Shape: []int{tensorSizes[p]}}
		if l.halves {
			m.Parameters[p] = record.Parameter{DType: "float16", Shape: []int{tensorSizes[p]}}
		}
		if l.masters {
			master := p + "32"
			m.Parameters[master] = m.Parameters[p]
			m.Parameters[p] = record.Parameter{DType: "float16", Shape: []int{tensorSizes[p]}, Master: &master}
		}
	}
	return m
}

// event writes one call; what the program says stands in place of the truth.
func (l *loop) event(o *order, f record.Fields) error {
	if o.line > 0 {
		f["line"] = o.line
	}
	if _, ok := f["step"]; !ok {
		f["step"] = l.attempt
	}
	for key, value := range o.says {
		if f[key] = value; value == nil {
			delete(f, key)
		}
	}
	return l.w.Event(l.rank, f)
}

// snapshots keeps the tensors before and after a call.
func (l *loop) snapshots(f record.Fields, before, after []safetensors.Entry) error {
	for side, tensors := range map[string][]safetensors.Entry{"before": before, "after": after} {
		switch {
		case len(tensors) == 0:
			f[side] = []string{}
		case l.summaries:
			f[side+"_summary"] = summarise(tensors)
		default:
			name, err := l.w.Snapshot(tensors)
			if err != nil {
				return err
			}
			f[side] = name
		}
	}
	return nil
}

// summarise keeps every third element of what is large.
func summarise(tensors []safetensors.Entry) map[string]any {
	out := map[string]any{}
	for _, t := range tensors {
		var sample [][2]record.Number
		n, nonFinite, top, sumsq := len(t.Data)/4, 0, 0.0, 0.0
		for i := range n {
			v := float64(math.Float32frombits(uint32(t.Data[4*i]) | uint32(t.Data[4*i+1])<<8 | uint32(t.Data[4*i+2])<<16 | uint32(t.Data[4*i+3])<<24))
			if math.IsInf(v, 0) || math.IsNaN(v) {
				nonFinite++
			} else {
				top, sumsq = max(top, math.Abs(v)), sumsq+v*v
			}
			if i%3 == 0 {
				sample = append(sample, [2]record.Number{record.Number(i), record.Number(v)})
			}
		}
		out[t.Name] = map[string]any{"n": n, "nonfinite": nonFinite, "max": top, "sumsq": sumsq, "sample": sample}
	}
	return out
}

func (l *loop) grads() (out []safetensors.Entry) {
	for _, p := range sorted(l.grad) {
		if g := l.grad[p]; l.half(p) {
			elems := make([]fp16.Half, len(g))
			for i := range g {
				elems[i] = fp16.HalfFromFloat64(g[i])
			}
			out = append(out, safetensors.F16("grad/"+p, []int{len(g)}, elems))
		} else if g != nil {
			out = append(out, f32("grad/"+p, g))
		}
	}
	return out
}

func (l *loop) states(on []string) (out []safetensors.Entry) {
	for _, p := range on {
		out = append(out, f32("param/"+p, l.param[p]))
		for _, kind := range sorted(l.state[p]) {
			out = append(out, f32(kind+"/"+p, l.state[p][kind]))
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

// lose removes the calls of some attempts from the record.
func (l *loop) lose(dir string) error {
	file := filepath.Join(dir, "events.jsonl")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(data) {
		var e struct{ Step *int }
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Step == nil || !l.lost[*e.Step] {
			kept = append(kept, line...)
		}
	}
	return os.WriteFile(file, kept, 0o644)
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
		for _, s := range []step.Snapshot{e.Before, e.After} {
			for _, f := range s.Files {
				if n := len(names); n == 0 || names[n-1] != f {
					names = append(names, f)
				}
			}
		}
	}
	return record.ReadTensors(fsys, names, true, true)
}
