package evidence

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ordercheck/record"
	"ordercheck/step"
)

// reconstructed writes out what tensor files in this order are taken for: the
// window, the operation, its number and what it covers. Notes that only say that
// somebody looked are left out.
func reconstructed(t *testing.T, tape *tape, files []string) (told string, events []step.Event) {
	t.Helper()
	run, err := record.ReadTensors(tape.fsys, files, true, true)
	if err != nil {
		t.Fatal(err)
	}
	book := NewBook(run)
	t.Cleanup(book.Close)
	rank := Reconstruct(run, book)
	var b strings.Builder
	looks := 0
	for i, e := range rank.Events {
		if e.Seq != i || e.Recorded.File == "" {
			t.Errorf("event %d has seq %d and stands in %q", i, e.Seq, e.Recorded.File)
		}
		if e.Op == record.OpTensors {
			looks++
			continue
		}
		fmt.Fprintf(&b, "%d %s", e.Attempt.Value, e.Kind)
		switch {
		case e.Scale.Known:
			fmt.Fprintf(&b, " by %g", e.Scale.Value)
		case e.Threshold.Known:
			fmt.Fprintf(&b, " %s at %.4g of %.4g", e.Rule, e.Threshold.Value, e.Norm.Value)
		case e.Factor.Known:
			fmt.Fprintf(&b, " times %g", e.Factor.Value)
		case step.Is(e.Applied, false):
			b.WriteString(" skipped")
		}
		fmt.Fprintf(&b, " %s\n", strings.Join(e.Covers.Value, " "))
	}
	if looks != len(files) {
		t.Errorf("%d of %d files were looked at", looks, len(files))
	}
	if len(book.Notes) > 0 {
		t.Errorf("notes %v", book.Notes)
	}
	return b.String(), rank.Events
}

// Windows of an imagined loop, file by file.
func TestReconstruct(t *testing.T) {
	const n = 60
	inf := float32(math.Inf(1))
	w, b := gradient(n, 1), gradient(n, 2)
	grads := func(factor float64) tensors { return tensors{"grad/w": times(w, factor), "grad/b": times(b, factor)} }
	other := func(factor float64) tensors {
		return tensors{"grad/w": times(gradient(n, 3), factor), "grad/b": times(gradient(n, 4), factor)}
	}
	length := norm(w, b)
	overflow := tensors{"grad/w": append(times(w[1:], 65536), inf), "grad/b": times(b, 65536)}
	// States before and after a step that takes grads(1)·f.
	m := map[string][]float32{"w": gradient(n, 7), "b": gradient(n, 8)}
	params := tensors{"param/w": gradient(n, 5), "param/b": gradient(n, 6)}
	taken := func(f, count float64) tensors {
		after := tensors{"step/w": {float32(count)}, "step/b": {float32(count)}}
		for _, p := range []string{"w", "b"} {
			g, v := grads(f)["grad/"+p], params["param/"+p]
			moment, moved := times(m[p], 0.9), make([]float32, n)
			for i := range moved {
				moment[i] += 0.1 * g[i]
				moved[i] = v[i] - 0.01*g[i]
			}
			after["exp_avg/"+p], after["param/"+p] = moment, moved
		}
		return after
	}
	at := func(count float64) tensors {
		return params.add(tensors{"step/w": {float32(count)}, "step/b": {float32(count)}, "exp_avg/w": m["w"], "exp_avg/b": m["b"]})
	}
	// The first step: there is no moment before.
	first := taken(1, 1).add(tensors{"exp_avg/w": times(w, 0.1), "exp_avg/b": times(b, 0.1)})
	spoilt := at(4).add(tensors{"param/w": {inf}, "param/b": {inf, 1}})
	plain := func(s tensors) tensors {
		out := tensors{}
		for name, v := range s {
			if strings.HasPrefix(name, "param/") {
				out[name] = v
			}
		}
		return out
	}
	for _, c := range []struct {
		name  string
		files []tensors
		want  string
	}{
		{"the textbook", []tensors{grads(65536), grads(1), grads(0.3)},
			"1 backward times 65536 b w\n1 unscale by 65536 b w\n1 clip global_norm at {0.3} of {1} b w\n"},
		{"clipped before the unscale", []tensors{grads(65536), grads(65536 * 0.3), grads(0.3)},
			"1 backward times 65536 b w\n1 clip global_norm at {19660.8} of {65536} b w\n1 unscale by 65536 b w\n"},
		{"divided twice", []tensors{grads(65536), grads(1), grads(0x1p-16)},
			"1 backward times 65536 b w\n1 unscale by 65536 b w\n1 unscale by 65536 b w\n"},
		{"divided twice at once", []tensors{grads(65536), grads(0x1p-16)},
			"1 backward times 4.294967296e+09 b w\n1 unscale by 4.294967296e+09 b w\n"},
		{"and by another number: a mean of 2048 micro-batches", []tensors{grads(65536), grads(1), grads(0x1p-11)},
			"1 backward times 65536 b w\n1 unscale by 65536 b w\n1 grad_op by 2048 b w\n"},
		{"a mean over 3 ranks, then the unscale", []tensors{grads(65536 * 3), grads(65536), grads(1)},
			"1 backward times 65536 b w\n1 grad_op b w\n1 unscale by 65536 b w\n"},
		{"a mean over 64 ranks", []tensors{grads(64), grads(1)}, "1 backward b w\n1 grad_op b w\n"},
		{"a small scale is not told from that", []tensors{grads(512), grads(1)}, "1 backward b w\n1 grad_op b w\n"},
		{"the smallest scale that is", []tensors{grads(1024), grads(1)}, "1 backward times 1024 b w\n1 unscale by 1024 b w\n"},
		{"a clip by one third looks like a mean", []tensors{grads(3), grads(1)}, "1 backward b w\n1 grad_op b w\n"},
		{"a strong clip is no unscale", []tensors{grads(1), grads(0.0001)}, "1 backward b w\n1 clip global_norm at {0.0001} of {1} b w\n"},
		{"multiplied by more than 1", []tensors{grads(1), grads(3)}, "1 backward b w\n1 grad_op b w\n"},
		{"nothing moved", []tensors{grads(65536), grads(65536), grads(1), grads(1)}, "1 backward times 65536 b w\n1 unscale by 65536 b w\n"},
		{"other gradients", []tensors{grads(65536), other(65536), other(1)}, "1 backward b w\n2 backward times 65536 b w\n2 unscale by 65536 b w\n"},
		{"the negative", []tensors{grads(1), grads(-1)}, "1 backward b w\n2 backward b w\n"},
		{"zeroed", []tensors{grads(1), grads(0)}, "1 backward b w\n2 backward b w\n"},
		{"cut by value", []tensors{grads(1), {"grad/w": limited(w, 2), "grad/b": limited(b, 2)}}, "1 backward b w\n1 clip value at 2 of {1} b w\n"},
		{"each tensor clipped", []tensors{grads(1), {"grad/w": times(w, 0.3/norm(w)), "grad/b": times(b, 0.3/norm(b))}},
			"1 backward b w\n1 clip per_tensor at 0.3 of {1} b w\n"},
		{"noise added", []tensors{grads(1), {"grad/w": noisy(w), "grad/b": noisy(b)}}, "1 backward b w\n1 grad_op b w\n"},
		{"not finite, before and after", []tensors{{"grad/w": {inf, inf}}, {"grad/w": {float32(math.NaN()), inf}}}, "1 backward w\n1 grad_op w\n"},
		{"one more tensor", []tensors{{"grad/w": times(w, 65536)}, grads(1)}, "1 backward times 65536 w\n1 unscale by 65536 w\n"},

		{"stepped", []tensors{grads(65536), at(4).add(grads(1)), taken(1, 5)},
			"1 backward times 65536 b w\n1 unscale by 65536 b w\n1 step b w\n"},
		{"stepped, first", []tensors{params, grads(1), first}, "1 backward b w\n1 step b w\n"},
		{"stepped by plain SGD", []tensors{params, grads(1), plain(taken(1, 1))}, "1 backward b w\n1 step b w\n"},
		{"stepped with scaled gradients", []tensors{at(0), grads(65536), taken(65536, 1)}, "1 backward b w\n1 step b w\n"},
		{"stepped twice unseen", []tensors{at(0), grads(1), taken(1, 2)}, "1 backward b w\n"},
		{"stepped with others", []tensors{at(0), other(1), taken(1, 1)}, "1 backward b w\n"},
		{"steps unseen, and then the same gradients", []tensors{at(0), grads(65536), taken(1, 9), grads(1)}, "1 backward b w\n2 backward b w\n"},
		{"stepped, then divided: other gradients", []tensors{at(0), grads(65536), taken(65536, 1), grads(1)}, "1 backward b w\n1 step b w\n2 backward b w\n"},
		{"skipped", []tensors{at(4), overflow, at(4)}, "1 backward b w\n1 step skipped b w\n"},
		{"skipped, but the count moved", []tensors{at(4), overflow, at(5)}, "1 backward b w\n1 step skipped b w\n"},
		{"parameters are NaN by then", []tensors{spoilt, overflow, spoilt}, "1 backward b w\n"},
		{"states of two moments", []tensors{params, {"exp_avg/w": m["w"], "exp_avg/b": m["b"]}, grads(1), taken(1, 1)}, "1 backward b w\n"},
		{"not stepped yet", []tensors{at(4), grads(1), at(4)}, "1 backward b w\n"},
		{"no state before", []tensors{grads(1), taken(1, 1)}, "1 backward b w\n"},
		{"overflow applied", []tensors{at(4), overflow, taken(float64(inf), 5)}, "1 backward b w\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := newTape(t)
			var files []string
			for _, f := range c.files {
				files = append(files, tape.snapshot(f))
			}
			want := c.want
			for _, f := range []float64{0.0001, 0.3, 1, 19660.8, 65536} {
				want = strings.ReplaceAll(want, fmt.Sprintf("{%g}", f), fmt.Sprintf("%.4g", f*length))
			}
			if got, _ := reconstructed(t, tape, files); got != want {
				t.Errorf("told\n%swant\n%s", got, want)
			}
		})
	}
}

func limited(v []float32, limit float32) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = max(-limit, min(limit, v[i]))
	}
	return out
}

// noisy adds a term that leaves most of v.
func noisy(v []float32) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = v[i] + 0.8*float32(math.Sin(float64(i*i)))
	}
	return out
}

// Gradients that are binary16 after the mean over 64 ranks and after the clip are
// told within what rounding allows.
func TestReconstructHalf(t *testing.T) {
	tape := newTape(t)
	v := gradient(60, 1)
	var files []string
	for _, f := range []float64{64, 1, 0.37} {
		files = append(files, tape.file(half("grad/w", times(v, f)...)))
	}
	got, _ := reconstructed(t, tape, files)
	if want := fmt.Sprintf("1 backward w\n1 grad_op w\n1 clip global_norm at %.2g", 0.37*norm(v)); !strings.HasPrefix(got, want) {
		t.Errorf("told\n%swant\n%s", got, want)
	}
}

// A step's sides are the files that show them.
func TestReconstructedSides(t *testing.T) {
	tape := newTape(t)
	g, p := gradient(9, 1), gradient(9, 2)
	moved := make([]float32, 9)
	for i := range moved {
		moved[i] = p[i] - 0.1*g[i]
	}
	before := tape.snapshot(tensors{"param/w": p})
	scaled := tape.snapshot(tensors{"grad/w": times(g, 65536)})
	unscaledFile := tape.snapshot(tensors{"grad/w": g})
	after := tape.snapshot(tensors{"param/w": moved})
	other := tape.snapshot(tensors{"grad/w": gradient(9, 3)})
	_, events := reconstructed(t, tape, []string{other, before, scaled, unscaledFile, after})
	sides := map[step.Kind]string{}
	for _, e := range events {
		if e.Op != record.OpTensors {
			sides[e.Kind] = fmt.Sprintf("%v %v", e.Before.Files, e.After.Files)
		}
	}
	for kind, want := range map[step.Kind]string{
		step.Backward: fmt.Sprintf("[] [%s]", scaled),
		step.Unscale:  fmt.Sprintf("[%s] [%s]", scaled, unscaledFile),
		step.Step:     fmt.Sprintf("[%s %s] [%s]", unscaledFile, before, after),
	} {
		if sides[kind] != want {
			t.Errorf("%s: %s, want %s", kind, sides[kind], want)
		}
	}
}
