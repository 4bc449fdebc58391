package evidence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ordercheck/record"
)

// dividing is a loop that divides its gradients itself between the backward and
// the step, at the attempts that divide holds; what is kept of it is looked at
// at the attempts of look. The file system may lose files afterwards.
func dividing(t *testing.T, attempts int, divide, look func(int) bool) *tape {
	tape := newTape(t)
	tape.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"w"}}}
	for i := range attempts {
		g := gradient(20, i)
		scaled := tensors{"grad/w": times(g, 1024)}
		taken := scaled
		if divide(i) {
			taken = tensors{"grad/w": g}
		}
		backward := record.Fields{"root": 1024.0, "factor": 1024.0, "line": 4}
		step := record.Fields{"optimizer": "0", "via": "optimizer", "called": true, "line": 7}
		if look(i) {
			backward["before"], backward["after"] = []string{}, tape.snapshot(scaled)
			step["before"] = tape.snapshot(taken)
		}
		tape.event(i, "zero_grad", record.Fields{"optimizer": "0", "line": 2})
		tape.event(i, "scale_loss", record.Fields{"scaler": "0", "scale": 1024.0, "scaled": 1024.0, "line": 3})
		tape.event(i, "backward", backward)
		tape.event(i, "step", step)
	}
	return tape
}

// sentences writes out what each step took: the words that made each part,
// inferred ones in brackets, and the unit that was taken.
func sentences(s *Story) string {
	var b strings.Builder
	for _, c := range s.Machine.Consumptions {
		fmt.Fprintf(&b, "%d", c.Attempt.Value)
		for _, p := range c.Parts {
			fmt.Fprintf(&b, " | %s:", strings.Join(s.Universe.Members(p.On), " "))
			for _, w := range p.Words {
				if name := w.Op.Kind.String(); s.Events[w.Op.Event].Inferred {
					fmt.Fprintf(&b, " [%s]", name)
				} else {
					b.WriteString(" " + name)
				}
			}
			fmt.Fprintf(&b, " (%s)", p.Unit())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func everyTime(int) bool { return true }

// What code without calls was seen to do is told, and where nobody looked it is
// taken to do as it did each time somebody did. Where that varied nothing is known.
func TestTellByHabit(t *testing.T) {
	first := func(n int) func(int) bool { return func(i int) bool { return i < n } }
	const (
		told    = " | w: backward [unscale] (1)\n"
		wrong   = " | w: backward (1024)\n"
		unknown = " | w: backward grad_op (unknown)\n"
		claimed = " | w: backward grad_op (1024)\n"
	)
	for _, c := range []struct {
		name         string
		divide, look func(int) bool
		want         [4]string
	}{
		{"looked at each time", everyTime, everyTime, [4]string{told, told, told, told}},
		{"looked at twice", everyTime, first(2), [4]string{told, told, told, told}},
		{"looked at once", everyTime, first(1), [4]string{told, told, told, told}},
		{"never looked at", everyTime, first(0), [4]string{claimed, claimed, claimed, claimed}},
		{"divided once of twice", first(1), first(2), [4]string{told, wrong, unknown, unknown}},
		{"never divided", first(0), first(2), [4]string{wrong, wrong, wrong, wrong}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := sentences(dividing(t, 4, c.divide, c.look).story()), ""
			for i, w := range c.want {
				want += fmt.Sprintf("%d%s", i, w)
			}
			if got != want {
				t.Errorf("told\n%swant\n%s", got, want)
			}
		})
	}
}

// A snapshot that cannot be read is as one that nobody kept, but for the note.
func TestTellWithoutSnapshots(t *testing.T) {
	whole, never := dividing(t, 4, everyTime, everyTime), dividing(t, 4, everyTime, func(int) bool { return false })
	names := slices.Collect(maps.Keys(whole.fsys))
	for _, name := range names {
		delete(whole.fsys, name)
	}
	s := whole.story()
	if got, want := sentences(s), sentences(never.story()); got != want {
		t.Errorf("told\n%sand where nobody looked\n%s", got, want)
	}
	if len(s.Book.Notes) != len(names) {
		t.Errorf("%d notes on %d snapshots that are gone: %v", len(s.Book.Notes), len(names), s.Book.Notes)
	}
	if s.Looked {
		t.Error("gradients were looked at, they say")
	}
}

// The same run is told the same way each time.
func TestTellIsDeterministic(t *testing.T) {
	tape := dividing(t, 6, func(i int) bool { return i%2 == 0 }, func(i int) bool { return i%3 > 0 })
	first := sentences(tape.story())
	for range 5 {
		if again := sentences(tape.story()); again != first {
			t.Fatalf("told\n%sand then\n%s", first, again)
		}
	}
}
