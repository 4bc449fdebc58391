package evidence

import (
	"fmt"
	"strings"
	"testing"

	"ordercheck/record"
	"ordercheck/step"
)

func text(s string) *string { return &s }

// ownership writes out who owns what; a question mark is an assumption.
func ownership(u *Universe, optimizers ...string) string {
	var b strings.Builder
	for _, id := range optimizers {
		on, known := u.Owned(id)
		fmt.Fprintf(&b, "%s: %s%s\n", id, strings.Join(u.Members(on), " "), map[bool]string{false: " ?"}[known])
	}
	return b.String()
}

// Who owns which parameters: the manifest says it, else the states beside the
// steps, else there is but one optimizer, else it is assumed of all.
func TestUniverse(t *testing.T) {
	grads := tensors{"grad/a": {1}, "grad/b": {1}, "grad/c": {1}}
	for _, c := range []struct {
		name   string
		record func(tape *tape)
		want   string
		sole   bool
	}{
		{"the manifest", func(r *tape) {
			r.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"a", "b"}}, "1": {Params: []string{"c"}}}
			r.event(0, "step", record.Fields{"optimizer": "0", "before": r.snapshot(grads.add(tensors{"param/c": {1}}))})
			r.event(0, "step", record.Fields{"optimizer": "1"})
		}, "0: a b\n1: c\n", false},
		{"the manifest, by rank", func(r *tape) {
			r.manifest.Optimizers = map[string]record.Optimizer{"0": {ParamsByRank: map[string][]string{"0": {"b"}, "1": {"a"}}}}
			r.manifest.Parameters = map[string]record.Parameter{"a": {}, "b": {}}
			r.event(0, "step", record.Fields{"optimizer": "0"})
		}, "0: b\n1: a b ?\n", true},
		{"the manifest, and nothing of this rank", func(r *tape) {
			r.manifest.Optimizers = map[string]record.Optimizer{"0": {ParamsByRank: map[string][]string{"1": {"a"}}}}
			r.event(0, "step", record.Fields{"optimizer": "0", "before": r.snapshot(grads)})
		}, "0: \n1: a b c ?\n", true},
		{"an optimizer that owns nothing", func(r *tape) {
			r.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"a"}}, "1": {ParamsByRank: map[string][]string{"0": nil}}}
			r.event(0, "step", record.Fields{"optimizer": "0"})
		}, "0: a\n1: \n", false},
		{"states of Adam", func(r *tape) {
			r.event(0, "step", record.Fields{"optimizer": "0", "before": r.snapshot(grads), "after": r.snapshot(tensors{"exp_avg/a": {1}, "exp_avg/b": {1}})})
			r.event(0, "step", record.Fields{"optimizer": "1", "before": r.snapshot(grads), "after": r.snapshot(tensors{"exp_avg/c": {1}})})
		}, "0: a b\n1: c\n", false},
		{"states of SGD, of plain SGD", func(r *tape) {
			r.event(0, "step", record.Fields{"optimizer": "0", "after": r.snapshot(tensors{"momentum_buffer/a": {1}})})
			r.event(0, "step", record.Fields{"optimizer": "1", "before": r.snapshot(tensors{"param/b": {1}, "param/c": {1}})})
		}, "0: a\n1: b c\n", false},
		{"one optimizer, and gradients", func(r *tape) {
			r.event(0, "backward", record.Fields{"after": r.snapshot(grads)})
			r.event(0, "step", record.Fields{"optimizer": "7"})
		}, "7: a b c\n0: a b c ?\n", true},
		{"two optimizers, and gradients", func(r *tape) {
			r.event(0, "backward", record.Fields{"after": r.snapshot(grads)})
			r.event(0, "step", record.Fields{"optimizer": "0"})
			r.event(0, "step", record.Fields{"optimizer": "1"})
		}, "0: a b c ?\n1: a b c ?\n", true},
		{"two optimizers, and what a clip covers", func(r *tape) {
			r.event(0, "clip", record.Fields{"optimizer": "0", "covers": []string{"x", "y"}})
			r.event(0, "step", record.Fields{"optimizer": "1"})
		}, "0: x y ?\n1: x y ?\n", true},
		{"no names at all", func(r *tape) {
			r.event(0, "step", record.Fields{"optimizer": "0"})
			r.event(0, "step", record.Fields{"optimizer": "1"})
		}, "0: (all parameters) 0\n1: (all parameters) 1\n", false},
		{"no names and no optimizers", func(r *tape) { r.event(0, "backward", nil) }, "0: (all parameters) ?\n", true},
		{"summaries", func(r *tape) {
			r.event(0, "backward", record.Fields{"after_summary": record.Fields{"grad/a": record.Fields{"n": 3}}})
			r.event(0, "step", record.Fields{"optimizer": "0"})
		}, "0: a\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tape := newTape(t)
			c.record(tape)
			run := tape.run()
			book := NewBook(run)
			defer book.Close()
			u := newUniverse(run, run.Ranks[0], book)
			var ids []string
			for line := range strings.Lines(c.want) {
				id, _, _ := strings.Cut(line, ":")
				ids = append(ids, id)
			}
			if got := ownership(u, ids...); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
			if u.sole() != c.sole {
				t.Errorf("sole() = %v", u.sole())
			}
			if u.All().Len() != len(u.Names) {
				t.Errorf("%d names, All() has %d", len(u.Names), u.All().Len())
			}
		})
	}
}

// Masters are float32 copies: a backward fills their FP16 parameters, not them.
func TestMasters(t *testing.T) {
	tape := newTape(t)
	tape.manifest.Parameters = map[string]record.Parameter{
		"w": {Master: text("w.master")}, "b": {Master: text("b.master")}, "own": {Master: text("own")}, "plain": {},
	}
	tape.manifest.Optimizers = map[string]record.Optimizer{"0": {Params: []string{"w.master", "b.master", "own", "plain"}}}
	tape.event(0, "backward", nil)
	run := tape.run()
	u := newUniverse(run, run.Ranks[0], NewBook(run))
	members := func(s step.Set) string { return fmt.Sprint(u.Members(s)) }
	if got := members(u.filledByBackward()); got != "[b own plain w]" {
		t.Errorf("a backward fills %s", got)
	}
	owned, _ := u.Owned("0")
	if got := members(u.sources(owned)); got != "[b w]" {
		t.Errorf("the sources of what is owned are %s", got)
	}
	if got := members(u.sources(u.set([]string{"w.master", "plain"}))); got != "[w]" {
		t.Errorf("the sources of one master are %s", got)
	}
}
