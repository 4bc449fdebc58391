package step

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawOperation draws any operation on any parameters of a universe of n.
func drawOperation(t *rapid.T, n, event int, attempt Maybe[int]) *Operation {
	op := &Operation{
		Kind:    rapid.SampledFrom([]Kind{ZeroGrad, Backward, Backward, Unscale, Clip, Step, UpdateScale, Check, Norm, Reduce, GradOp, Log, Other}).Draw(t, "kind"),
		Event:   event,
		Attempt: attempt,
		Certain: rapid.Bool().Draw(t, "certain"),
		Claimed: rapid.IntRange(0, 9).Draw(t, "claimed") == 0,
	}
	mask := rapid.IntRange(0, 1<<n-1).Draw(t, "on")
	for i := range n {
		if mask>>i&1 == 0 { // 0 is all of them
			op.On = op.On.with(i)
		}
	}
	scale := rapid.SampledFrom([]float64{1, 8, 16}).Draw(t, "scale")
	switch op.Kind {
	case Backward:
		op.Term = rapid.SampledFrom([]Unit{ScaleUnit(scale), One, UnknownUnit}).Draw(t, "term")
		op.Scalers = rapid.SampledFrom([][]string{nil, {"0"}, {"1"}, {"0", "1"}}).Draw(t, "scalers")
		op.Fresh = drawMaybe(t, "fresh")
		op.Site = rapid.SampledFrom([]string{"", "train.py:12"}).Draw(t, "site")
	case Unscale:
		op.Divisor, op.FoundInf = scale, drawMaybe(t, "found_inf")
	case Check:
		op.FoundInf = drawMaybe(t, "found_inf")
	case Clip:
		op.Threshold = rapid.SampledFrom([]Unit{One, ScaleUnit(scale), UnknownUnit}).Draw(t, "threshold")
		op.Inert, op.Partwise = rapid.IntRange(0, 4).Draw(t, "inert") == 0, rapid.IntRange(0, 4).Draw(t, "partwise") == 0
		op.Refilled = rapid.Bool().Draw(t, "refilled")
	case Step:
		op.Outcome = rapid.SampledFrom([]Outcome{Applied, Skipped, Idle}).Draw(t, "outcome")
		op.Scaled = rapid.Bool().Draw(t, "scaled")
	case UpdateScale:
		op.Scaler, op.Given = rapid.SampledFrom([]string{"0", "1"}).Draw(t, "scaler"), rapid.Bool().Draw(t, "given")
	case GradOp:
		op.Muddles = rapid.Bool().Draw(t, "muddles")
		op.Multiplier = rapid.SampledFrom([]float64{0, scale}).Draw(t, "multiplier")
	}
	return op
}

func drawMaybe(t *rapid.T, label string) Maybe[bool] {
	return rapid.SampledFrom([]Maybe[bool]{{}, Some(false), Some(true)}).Draw(t, label)
}

// slowMachine is the obvious machine: one for each parameter, so that nothing is
// ever split or joined.
type slowMachine []*Machine

func newSlowMachine(n int) slowMachine {
	var s slowMachine
	for range n {
		s = append(s, NewMachine(1))
	}
	return s
}

func (s slowMachine) Do(op *Operation) {
	for i, m := range s {
		one := *op
		one.On = nil
		if op.On.Has(i) {
			one.On = SetOf(0)
		}
		m.Do(&one)
	}
}

func (s slowMachine) Copy(from int, to Set) {
	source := s[from].PartOf(0).copy()
	for _, i := range to.Members() {
		*s[i].parts[0] = source.copy()
	}
}

func (s slowMachine) Muddle() {
	for _, m := range s {
		m.Muddle()
	}
}

// Whatever is done, in whatever order: the parts are disjoint and cover the
// universe, no two of them have the same history, and every parameter has the
// history that it has on a machine of its own.
func TestPropertyPartsAreAsGoodAsParameters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 4).Draw(t, "parameters")
		m, slow := NewMachine(n), newSlowMachine(n)
		event, attempt, last := 0, Some(0), Other
		for range rapid.IntRange(1, 100).Draw(t, "operations") {
			next, nextAttempt := event+1, attempt
			switch rapid.IntRange(0, 11).Draw(t, "position") {
			case 0, 1:
				nextAttempt = Some(attempt.Value + 1)
			case 2:
				nextAttempt.Known = !attempt.Known
			}
			switch rapid.IntRange(0, 19).Draw(t, "move") {
			case 0:
				m.Muddle()
				slow.Muddle()
			case 1:
				if n == 0 {
					continue
				}
				from, to := rapid.IntRange(0, n-1).Draw(t, "from"), SetOf(rapid.SliceOf(rapid.IntRange(0, n-1)).Draw(t, "to")...)
				m.Copy(SetOf(from), to)
				slow.Copy(from, to)
			default:
				op := drawOperation(t, n, next, nextAttempt)
				if (last == Unscale || last == Check) && op.Kind == Step && rapid.Bool().Draw(t, "same event") {
					op.Event, op.Attempt = event, attempt // a call may stand for several operations
				}
				event, attempt, last = op.Event, op.Attempt, op.Kind
				m.Do(op)
				slow.Do(op)
				for i, p := range m.parts {
					for _, q := range m.parts[:i] {
						if op.Kind != UpdateScale && transitions[op.Kind] != nil && p.alike(q) {
							t.Fatalf("after %v: %v and %v have the same history", op.Kind, p.On.Members(), q.On.Members())
						}
					}
				}
			}
			mustPartition(t, m.parts, n)
			for i := range n {
				if got, want := history(m.PartOf(i)), history(slow[i].PartOf(0)); got != want {
					t.Fatalf("parameter %d is\n%sand on a machine of its own\n%s", i, got, want)
				}
			}
		}
		for i := range n {
			if got, want := breaches(of(m.Loose, i)), breaches(of(slow[i].Loose, 0)); got != want {
				t.Fatalf("parameter %d: loose\n%sand on a machine of its own\n%s", i, got, want)
			}
			for j, c := range m.Consumptions {
				if got, want := consumption(&c, i), consumption(&slow[i].Consumptions[j], 0); got != want {
					t.Fatalf("parameter %d: the step took\n%sand on a machine of its own\n%s", i, got, want)
				}
			}
		}
	})
}

func mustPartition(t *rapid.T, parts []*Part, n int) {
	owner := map[int]*Part{}
	for _, p := range parts {
		if p.On.Empty() {
			t.Fatal("a part of nothing")
		}
		for _, i := range p.On.Members() {
			if owner[i] != nil {
				t.Fatalf("parameter %d is in two parts", i)
			}
			owner[i] = p
		}
	}
	if len(owner) != n {
		t.Fatalf("the parts cover %d of %d parameters", len(owner), n)
	}
}

// history writes out all that a part says of its parameters. The breaches of its
// words are theirs, whichever of them they were found in.
func history(p *Part) string {
	text := fmt.Sprintf("%v %v, verdict %+v, claimed %v\n", p.State, p.Unit(), p.Verdict, p.Claimed)
	for _, term := range p.Terms {
		text += fmt.Sprintf("  term %v of event %d, stale %v, certain %v, %v, scalers %v\n", term.Unit, term.Event, term.Stale, term.Certain, term.Attempt, term.Scalers)
	}
	for _, w := range p.Words {
		text += fmt.Sprintf("  %v at %d in %v\n", w.Op.Kind, w.Op.Event, w.Unit) + breaches(w.Breaches)
	}
	return text
}

func breaches(all []Breach) (text string) {
	for _, b := range all {
		text += fmt.Sprintf("    %s at %d in %v: %s\n", b.Rule, b.Event, b.Unit, b.Says)
	}
	return text
}

// of keeps the breaches of one parameter, and those of the scale, which is of all.
func of(all []Breach, i int) []Breach {
	return slices.DeleteFunc(slices.Clone(all), func(b Breach) bool { return len(b.On) > 0 && !b.On.Has(i) })
}

func consumption(c *Consumption, i int) string {
	text := fmt.Sprintf("%d %v %v\n", c.Event, c.Attempt, c.Outcome) + breaches(of(c.Broken, i))
	for j := range c.Parts {
		if c.Parts[j].On.Has(i) {
			text += history(&c.Parts[j])
		}
	}
	return text
}

// Parts splits what straddles the set, and only that.
func TestPropertyPartsWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 70
		m := NewMachine(n)
		for range rapid.IntRange(1, 4).Draw(t, "cuts") {
			s, _ := drawSet(t, "set")
			var within Set
			for _, p := range m.Parts(s) {
				if !p.On.Within(s) {
					t.Fatalf("part %v is not within %v", p.On.Members(), s.Members())
				}
				within = within.Or(p.On)
			}
			want := slices.DeleteFunc(s.Members(), func(i int) bool { return i >= n })
			if !slices.Equal(within.Members(), want) {
				t.Fatalf("the parts within %v cover %v", want, within.Members())
			}
			mustPartition(t, m.parts, n)
		}
	})
}

// What a step took is a copy: nothing that happens later changes it.
func TestConsumptionsStay(t *testing.T) {
	m := NewMachine(2)
	both := SetOf(0, 1)
	m.Do(&Operation{Kind: Backward, On: both, Term: ScaleUnit(8), Scalers: []string{"0"}})
	m.Do(&Operation{Kind: Step, Event: 1, On: both})
	before := consumption(&m.Consumptions[0], 0)
	m.Do(&Operation{Kind: Clip, Event: 2, On: SetOf(0)})
	m.Do(&Operation{Kind: Unscale, Event: 3, On: both, Divisor: 8})
	m.Do(&Operation{Kind: Backward, Event: 4, On: both, Term: ScaleUnit(8), Fresh: Some(false)})
	m.Do(&Operation{Kind: Unscale, Event: 5, On: both, Divisor: 8})
	if after := consumption(&m.Consumptions[0], 0); after != before {
		t.Errorf("the step took\n%sand later\n%s", before, after)
	}
}

// A step's own breach is that of the part in which it was found, and no other's.
func TestBreachesOfParts(t *testing.T) {
	m := NewMachine(2)
	both, second := SetOf(0, 1), SetOf(1)
	m.Do(&Operation{Kind: Backward, On: both, Term: ScaleUnit(8), Scalers: []string{"0"}})
	m.Do(&Operation{Kind: Unscale, Event: 1, On: SetOf(0), Divisor: 8, FoundInf: Some(false)})
	m.Do(&Operation{Kind: Step, Event: 2, On: both, Scaled: true})
	for _, rule := range []string{"OC1003", "OC2001"} {
		n := 0
		m.Consumptions[0].Breaches(rule, func(p *Part, b Breach) {
			n++
			if !slices.Equal(p.On.Members(), second.Members()) || !slices.Equal(b.On.Members(), second.Members()) || b.Event != 2 {
				t.Errorf("%s of %v in the part of %v", rule, b.On.Members(), p.On.Members())
			}
		})
		if n != 1 {
			t.Errorf("%s: %d breaches", rule, n)
		}
	}
}
