package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"ordercheck/record"
)

// TestStories runs the golden stories of the rules: each is a training loop, in
// the language of loop_test.go, and what the rule of the file says of its
// recording. Rewrite them with
//
//	go test ./check -run TestStories -rewrite
//
// and read the difference: it is the change in what users are told.
//
//	loop steps=N        attempts (6)
//	     scale=S        initial loss scale (65536)
//	     growth=N       clean steps until it doubles (2); 0: never
//	     overflow=(A,…) attempts at which gradients overflow in FP16
//	     in=(P,…)       the tensors in which they do (w,b)
//	     look=(A,…)     attempts of which snapshots are kept (all); look=none
//	     without=(OP,…) calls that are left out of the record
//	     lost=(A,…)     attempts of which the record lost all calls
//	     hand           the script scales its loss itself
//	     off            the scaler is switched off
//	     double         two optimizers: 0 owns w, 1 owns b
//	     shards         two ranks: 0 owns w, 1 owns b; they join their verdicts
//	     ranks          two ranks with data of their own; each owns w and b
//	     where=R        the only rank at which gradients overflow
//	     masters        FP16 parameters w, b; the optimizer owns float32 copies
//	     sgd, plain     SGD with momentum, or without, in place of AdamW
//	     flat           gradients of one size, as an absolute loss has
//	     custom         an optimizer that nobody knows
//	     halves         FP16 parameters, stepped as they are
//	     bf16           computed in BF16
//	     resumed        optimizer 1 takes the place of optimizer 0
//	     policy         the record tells the scaler's policy: PyTorch's
//	     eps=X          of the optimizer
//	     per-update     the author declares a schedule that counts updates
//	     summaries      in place of snapshots
//	     tensors        only the snapshots, in order
//	     max-norm=X     what the author declares
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		rule := strings.ToUpper(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			dir := t.TempDir()
			l := newLoop()
			opt, tensors, err := l.configure(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			if err := l.run(dir, strings.Split(d.Input, "\n")); err != nil {
				d.Fatalf(t, "%v", err)
			}
			run, err := record.ReadRecording(os.DirFS(dir))
			if tensors {
				run, err = onlyTensors(dir)
			}
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return tell(rule, Check([]Source{{Path: "story", Run: run}}, opt))
		})
	})
}

func (l *loop) configure(d *datadriven.TestData) (opt Options, tensors bool, err error) {
	for _, a := range d.CmdArgs {
		number := func() float64 {
			v, e := strconv.ParseFloat(a.Vals[0], 64)
			if e != nil {
				err = fmt.Errorf("%s: %w", a.Key, e)
			}
			return v
		}
		switch a.Key {
		case "steps":
			l.steps = int(number())
		case "scale":
			l.scale = number()
		case "growth":
			l.growth = int(number())
		case "overflow":
			markEach(a.Vals, l.overflow)
		case "lost":
			markEach(a.Vals, l.lost)
		case "in":
			l.in = a.Vals
		case "look":
			kept := strings.Join(a.Vals, ",")
			l.look = func(n int) bool { return contains(kept, n) }
		case "without":
			for _, v := range a.Vals {
				l.without[v] = true
			}
		case "hand":
			l.hand = true
		case "off":
			l.off, l.scale = true, 1
		case "double":
			l.double = true
		case "shards":
			l.shards = true
		case "ranks":
			l.apart = true
		case "where":
			l.where = int(number())
		case "masters":
			l.masters, l.scale = true, 1024
		case "sgd":
			l.sgd = true
		case "plain":
			l.sgd, l.plain = true, true
		case "flat":
			l.flat = true
		case "custom":
			l.custom = true
		case "halves":
			l.halves = true
		case "bf16":
			l.bf16 = true
		case "resumed":
			l.resumed = true
		case "policy":
			l.policy = true
		case "eps":
			l.eps = number()
		case "per-update":
			l.perUpdate = true
		case "summaries":
			l.summaries = true
		case "tensors":
			tensors = true
		case "max-norm":
			opt.MaxNorm = number()
		default:
			err = fmt.Errorf("no argument %q", a.Key)
		}
	}
	return opt, tensors, err
}

func markEach(list []string, into map[int]bool) {
	for _, v := range list {
		n, _ := strconv.Atoi(v)
		into[n] = true
	}
}

// tell prints what was found for one rule, and every other root.
func tell(rule string, r *Report) string {
	var b strings.Builder
	for _, s := range r.Rules {
		if s.ID == rule {
			fmt.Fprintf(&b, "%s %s", s.ID, s.Status)
			if s.Why != "" {
				fmt.Fprintf(&b, ": %s", s.Why)
			}
			if r := ruleByID(rule); r != nil && s.Needs != "" && s.Needs != r.Needs {
				fmt.Fprintf(&b, ": %s", s.Needs)
			}
			b.WriteByte('\n')
		}
	}
	for _, f := range r.Findings {
		if f.Rule != rule {
			if f.Because == nil {
				fmt.Fprintf(&b, "also: %s %s %s, %d steps\n", f.Rule, f.Severity, f.Certainty, f.Count)
			}
			continue
		}
		fmt.Fprintf(&b, "%s, %s", f.Severity, f.Certainty)
		if f.Optimizer != nil && *f.Optimizer != "0" {
			fmt.Fprintf(&b, ", optimizer %s", *f.Optimizer)
		}
		if f.Rank != nil && *f.Rank != 0 {
			fmt.Fprintf(&b, ", rank %d", *f.Rank)
		}
		for i, s := range f.Steps {
			fmt.Fprintf(&b, "%s%d-%d", []string{", ", ", steps "}[btoi(i == 0)], s[0], s[1])
		}
		if f.Because != nil {
			fmt.Fprintf(&b, ", because %s", *f.Because)
		}
		if f.Where.Source != nil {
			fmt.Fprintf(&b, ", line %d", f.Where.Source.Line)
		}
		fmt.Fprintf(&b, "\n  %s\n", f.Message)
		for _, e := range f.Evidence {
			v := fmt.Sprint(e.Value)
			if x, ok := e.Value.(float64); ok {
				v = num(x)
			}
			fmt.Fprintf(&b, "  %s: %s\n", e.What, v)
		}
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
