package evidence

import (
	"fmt"
	"testing"

	"ordercheck/record"
	"ordercheck/step"
)

// go test ./evidence -run '^$' -bench Compare
//
// Both tensors are read; the bytes are those of float32.
func BenchmarkCompare(b *testing.B) {
	const n = 1 << 20
	before := make([]float32, 0, n)
	for range n / 1024 {
		before = append(before, gradient(1024, len(before)%13)...)
	}
	tape := newTape(b)
	names := []string{tape.snapshot(tensors{"grad/w": before}), tape.snapshot(tensors{"grad/w": times(before, 0.3)})}
	book := NewBook(tape.run())
	defer book.Close()
	var refs []Ref
	for _, name := range names {
		c, _ := book.Of(looked(name), "grad")
		refs = append(refs, c["w"])
	}
	b.SetBytes(2 * 4 * n)
	b.ReportAllocs()
	for b.Loop() {
		c, err := book.compare(refs[0], refs[1])
		if err != nil || c.Used == 0 {
			b.Fatalf("%+v, %v", c, err)
		}
	}
}

// loop makes the calls of a loop of which nobody kept snapshots.
type loop struct {
	attempts, params int
	each             bool // every tensor is clipped and checked on its own
	undated          bool // attempts are not numbered
	unstepped        bool // the second half of the parameters is never stepped or zeroed
	lines            int  // that the calls come from; the loop is unrolled
}

func (l loop) run() *record.Run {
	var names []string
	for i := range l.params {
		names = append(names, fmt.Sprintf("layers.%d.weight", i))
	}
	owned := names
	if l.unstepped {
		owned = names[:len(names)/2]
	}
	run := &record.Run{Kind: record.Recording, Ordered: true}
	run.Manifest.Optimizers = map[string]record.Optimizer{"0": {Name: "AdamW", Params: owned}}
	run.Manifest.Parameters = map[string]record.Parameter{}
	for _, name := range names {
		run.Manifest.Parameters[name] = record.Parameter{DType: "float32"}
	}
	var events []step.Event
	scale := 65536.0
	for attempt := range l.attempts {
		line := 0
		call := func(e step.Event) {
			e.Seq, e.Op = len(events), e.Kind.String()
			line++
			e.Line = line
			if l.lines > 0 {
				e.Line += attempt % l.lines * 100
			}
			if e.Attempt = step.Some(attempt); l.undated {
				e.Attempt = step.Maybe[int]{}
			}
			events = append(events, e)
		}
		call(step.Event{Kind: step.ZeroGrad, Optimizer: "0"})
		call(step.Event{Kind: step.ScaleLoss, Scaler: "0", Scale: step.Some(scale), Loss: step.Some(2.5), Scaled: step.Some(2.5 * scale)})
		call(step.Event{Kind: step.Backward, Root: step.Some(2.5 * scale), Factor: step.Some(scale)})
		if l.each {
			for _, name := range owned {
				call(step.Event{Kind: step.Clip, Rule: "per_tensor", Threshold: step.Some(1.0), Norm: step.Some(3 * scale), Covers: step.Some([]string{name})})
			}
		}
		call(step.Event{Kind: step.Unscale, Scaler: "0", Optimizer: "0", Scale: step.Some(scale), FoundInf: step.Some(false)})
		if !l.each {
			call(step.Event{Kind: step.Clip, Optimizer: "0", Rule: "global_norm", Threshold: step.Some(1.0), Norm: step.Some(3.0), Covers: step.Some(owned)})
		}
		call(step.Event{Kind: step.Step, Via: "scaler", Scaler: "0", Optimizer: "0", Called: step.Some(true), Applied: step.Some(true), FoundInf: step.Some(false)})
		if attempt%20 == 19 {
			scale = 196608 - scale // 65536 and 131072 in turn
		}
		call(step.Event{Kind: step.UpdateScale, Scaler: "0", Scale: step.Some(scale)})
	}
	run.Ranks = []record.Rank{{Events: events}}
	return run
}

// go test ./evidence -run '^$' -bench Tell -benchtime 1x
//
// The time for a call should not depend on how many there are. It does where
// gradients are never taken and attempts are not numbered: one sentence grows
// without end. And it depends on how many parameters have histories of their own.
func BenchmarkTell(b *testing.B) {
	for _, c := range []struct {
		name string
		loop
	}{
		{"attempts=1000/params=6", loop{attempts: 1000, params: 6}},
		{"attempts=10000/params=6", loop{attempts: 10000, params: 6}},
		{"attempts=1000/params=300", loop{attempts: 1000, params: 300}},
		{"attempts=10000/params=300", loop{attempts: 10000, params: 300}},
		{"attempts=1000/undated", loop{attempts: 1000, params: 6, undated: true}},
		{"attempts=10000/undated", loop{attempts: 10000, params: 6, undated: true}},
		{"attempts=1000/unstepped", loop{attempts: 1000, params: 6, unstepped: true}},
		{"attempts=10000/unstepped", loop{attempts: 10000, params: 6, unstepped: true}},
		{"attempts=1000/undated-unstepped", loop{attempts: 1000, params: 6, undated: true, unstepped: true}},
		{"attempts=4000/undated-unstepped", loop{attempts: 4000, params: 6, undated: true, unstepped: true}},
		{"attempts=1000/lines=1000", loop{attempts: 1000, params: 6, lines: 1000}},
		{"attempts=10000/lines=10000", loop{attempts: 10000, params: 6, lines: 10000}},
		{"attempts=10/each-of-params=100", loop{attempts: 10, params: 100, each: true}},
		{"attempts=10/each-of-params=300", loop{attempts: 10, params: 300, each: true}},
		{"attempts=10/each-of-params=1000", loop{attempts: 10, params: 1000, each: true}},
		{"attempts=100/each-of-params=100", loop{attempts: 100, params: 100, each: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			run := c.run()
			calls := len(run.Ranks[0].Events)
			b.ReportAllocs()
			for b.Loop() {
				s := Tell(run, run.Ranks[0], NewBook(run), Declared{})
				if got := len(s.Machine.Consumptions); got != c.attempts {
					b.Fatalf("%d steps", got)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(calls), "ns/call")
		})
	}
}
