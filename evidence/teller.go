package evidence

import (
	"slices"

	"ordercheck/record"
	"ordercheck/step"
)

// teller walks the calls of a rank in order.
type teller struct {
	run  *record.Run
	rank record.Rank
	book *Book
	u    *Universe

	habits     *habits
	fills      map[int]step.Set  // which parameters the backward of a line was seen to fill
	added      map[int]bool      // by line: whether a backward that was looked at found gradients there
	thresholds map[int]step.Unit // of clips, by event of the story

	// of one telling
	story  *Story
	scales *scales
	at     int     // index of the call in rank.Events
	grads  Content // gradients after the last call that may move them, if known
	known  bool
	prev   *step.Event // that call

	refilled bool // a backward ran since the last step
}

func newTeller(run *record.Run, rank record.Rank, book *Book) *teller {
	return &teller{
		run: run, rank: rank, book: book, u: newUniverse(run, rank, book),
		habits: newHabits(), fills: map[int]step.Set{}, added: map[int]bool{},
	}
}

func (t *teller) tell() *Story {
	t.scales = newScales(t.run, t.rank, t.book)
	t.story = &Story{
		Rank: t.rank.ID, Ranks: max(len(t.run.Ranks), t.run.Manifest.WorldSize), Script: t.run.Manifest.Source.Script, Universe: t.u, Book: t.book, Moves: map[int]Move{}, Dtypes: map[string]string{}, SameAs: map[string]string{}, Off: t.scales.off,
		Machine:    step.NewMachine(len(t.u.Names)),
		ScaledLoss: t.scales.any(), HandScale: t.scales.by == byHand, MaybeHand: t.scales.by == maybeByHand, Windows: t.run.Kind == record.Tensors,
	}
	for name, p := range t.run.Manifest.Parameters {
		t.story.Dtypes[name] = p.DType
		if p.SameAs != nil {
			t.story.SameAs[name] = *p.SameAs
		}
	}
	for _, o := range t.run.Manifest.Optimizers {
		t.story.Shards = t.story.Shards || o.ParamsByRank != nil
	}
	t.grads, t.known, t.prev, t.refilled = nil, false, nil, false
	for i := range t.rank.Events {
		e := &t.rank.Events[i]
		t.at = i
		if i > 0 && e.Seq > t.rank.Events[i-1].Seq+1 {
			t.story.Gaps = true
			t.story.Machine.Muddle()
			t.known, t.prev = false, nil
		}
		t.scales.see(e)
		before, looked := t.book.Of(e.Before, "grad")
		t.story.Looked = t.story.Looked || looked && len(before) > 0
		moves := e.Kind.MovesGradients() && !(e.Kind == step.Reduce && (e.What != "gradient" || e.Inside == "backward"))
		if moves {
			t.between(e, before, looked)
		}
		t.call(e, before, looked)
		if moves {
			t.look(e, before, looked)
			t.refilled = e.Kind == step.Backward || t.refilled && e.Kind != step.Step
		}
	}
	return t.story
}

// look notes what is known of the gradients after a call.
func (t *teller) look(e *step.Event, before Content, looked bool) {
	after, ok := t.book.Of(e.After, "grad")
	switch {
	case ok:
		t.grads, t.known = after, true
		t.story.Looked = t.story.Looked || len(after) > 0
	case e.Kind == step.Step && !e.Fused && looked:
		t.grads, t.known = before, true // an optimizer reads gradients
	case e.Kind == step.Step && !e.Fused:
	default:
		t.grads, t.known = nil, false
	}
	t.prev = e
}

// add appends an event to the story and returns its index.
func (t *teller) add(e *step.Event) int {
	t.story.Events = append(t.story.Events, e)
	return len(t.story.Events) - 1
}

func (t *teller) do(op step.Operation) { t.story.Machine.Do(&op) }

// call tells one recorded call.
func (t *teller) call(e *step.Event, before Content, looked bool) {
	index := t.add(e)
	op := step.Operation{Kind: e.Kind, Event: index, Attempt: e.Attempt, Optimizer: e.Optimizer, FoundInf: e.FoundInf}
	after, lookedAfter := t.book.Of(e.After, "grad")
	if looked && lookedAfter {
		if move := t.move(before, after, t.u.All()); len(move) > 0 {
			t.story.Moves[index] = move
		}
	}
	switch e.Kind {
	case step.ZeroGrad, step.Check, step.Norm, step.GradOp:
		op.On, op.Certain = t.on(e)
		t.do(op)
	case step.Reduce:
		if e.What == "gradient" {
			op.On, op.Certain = t.on(e)
			t.do(op)
		}
	case step.Backward:
		t.backward(e, op, before, looked, after, lookedAfter)
	case step.Unscale:
		if t.scales.counts(e) {
			op.On, op.Certain = t.on(e)
			op.Divisor = t.divisor(e)
			if f, ok := t.story.Moves[index].Only(op.On).Factor(); ok && f > 0 && !near(f*op.Divisor, 1, 1e-3) && !step.Is(e.FoundInf, true) {
				op.Divisor = t.scaleNear(op.On, 1/f) // where calls and numbers contradict each other the numbers win
			}
			op.On = op.On.Minus(t.untouched(index, op))
			if op.Divisor == 0 {
				op.Kind, op.Muddles = step.GradOp, true
			}
			t.do(op)
		}
	case step.Clip:
		op.On, op.Certain = t.on(e)
		op.Threshold = t.threshold(index)
		op.Inert = e.Threshold.Known && e.Threshold.Value > 1e300
		op.Partwise = e.Rule == "per_example"
		op.Refilled = t.refilled
		t.do(op)
	case step.Step:
		t.step(e, op)
	case step.UpdateScale:
		if t.scales.counts(e) {
			op.Scaler, op.Given = e.Scaler, e.GivenNew
			t.do(op)
		}
	case step.Other:
		if t.prev != nil { // nobody knows what it does
			t.do(step.Operation{Kind: step.GradOp, Event: index, Attempt: e.Attempt, On: t.u.All(), Claimed: true})
		}
	}
}

// on is the set of parameters that a call acts on.
func (t *teller) on(e *step.Event) (on step.Set, certain bool) {
	if e.Covers.Known {
		return t.u.set(e.Covers.Value), true
	}
	if e.Optimizer != "" {
		return t.u.Owned(e.Optimizer)
	}
	return t.u.All(), t.u.sole()
}

func (t *teller) divisor(e *step.Event) float64 {
	if e.Scale.Known {
		return e.Scale.Value
	}
	return t.scales.current[e.Scaler]
}

// untouched are the parameters that an unscale was seen to leave as they were,
// while it divided others.
func (t *teller) untouched(index int, op step.Operation) step.Set {
	var left []int
	divided := false
	for i, c := range t.story.Moves[index].Only(op.On) {
		f, ok := c.Factor()
		switch {
		case !ok || step.Is(op.FoundInf, true):
		case near(f*op.Divisor, 1, 1e-3):
			divided = true
		case c.Same():
			left = append(left, i)
		}
	}
	if !divided {
		return nil
	}
	return step.SetOf(left...)
}

// scaleNear is the scale that gradients carry if they were divided by about that,
// else the number itself.
func (t *teller) scaleNear(on step.Set, divisor float64) float64 {
	for _, p := range t.story.Machine.Parts(on) {
		if s, ok := p.Unit().IsScale(); ok && near(divisor, s, 1e-3) {
			return s
		}
	}
	return divisor
}

func (t *teller) threshold(index int) step.Unit {
	if u, ok := t.thresholds[index]; ok {
		return u
	}
	return step.UnknownUnit
}

// backward tells which parameters were filled, and with what unit.
func (t *teller) backward(e *step.Event, op step.Operation, before Content, looked bool, after Content, lookedAfter bool) {
	op.Term, op.Scalers = t.scales.term(e)
	op.Site = place(e)
	op.On, op.Certain = t.u.filledByBackward(), t.u.sole()
	switch usual, seen := t.fills[e.Line]; {
	case looked && lookedAfter:
		shown, hidden := t.filled(before, after)
		if e.Line != 0 {
			t.fills[e.Line] = usual.Or(shown)
		}
		if seen {
			hidden = hidden.And(usual)
		}
		op.On, op.Certain = shown.Or(hidden), hidden.Empty() || seen
	case seen:
		op.On, op.Certain = usual, true
	}
	if !looked {
		if added, seen := t.added[e.Line]; seen && !added {
			op.Fresh = step.Some(true) // as each time that somebody looked: a script may empty them by hand
		}
		t.do(op)
		t.hook(e, nil, op.On)
		return
	}
	var fresh, full []int
	for _, i := range op.On.Members() {
		ref, there := before[t.u.Names[i]]
		if s, ok := t.book.Stats(ref); !there || ok && s.Zero() {
			fresh = append(fresh, i)
		} else {
			full = append(full, i)
		}
	}
	if e.Line != 0 {
		t.added[e.Line] = t.added[e.Line] || len(full) > 0
	}
	for _, part := range []struct {
		on    []int
		fresh bool
	}{{fresh, true}, {full, false}} {
		if len(part.on) > 0 {
			op := op
			op.On, op.Fresh = step.SetOf(part.on...), step.Some(part.fresh)
			t.do(op)
		}
	}
	if lookedAfter {
		t.hook(e, after, op.On)
	}
}

// filled are the parameters whose gradient appeared or moved, and those where it
// would not show because it is not finite, before and after.
func (t *teller) filled(before, after Content) (shown, hidden step.Set) {
	var moved, dark []int
	for _, name := range sortedKeys(after) {
		i := t.u.add(name)
		if was, there := before[name]; there {
			if c, ok := t.book.Change(was, after[name]); ok && c.Same() {
				if c.After.NonFinite > 0 {
					dark = append(dark, i)
				}
				continue
			}
		}
		moved = append(moved, i)
	}
	return step.SetOf(moved...), step.SetOf(dark...)
}

// step tells what an optimizer's step stands for: a fused one unscales and
// checks itself, a scaler's unscales unless somebody did.
func (t *teller) step(e *step.Event, op step.Operation) {
	op.On, op.Certain = t.on(e)
	op.Scaled = t.story.ScaledLoss
	divide := step.Operation{Kind: step.Unscale, Event: op.Event, Attempt: op.Attempt, On: op.On, Certain: op.Certain}
	switch byScaler := e.Via == "scaler" && t.scales.counts(e); {
	case step.Is(e.Called, false):
	case e.GradScale.Known:
		divide.Divisor = e.GradScale.Value
	case byScaler && t.stillScaled(op.On): // a scaler hands no optimizer scaled gradients without telling it
		divide.Divisor = t.scales.current[e.Scaler]
	}
	if divide.Divisor > 0 {
		t.do(divide)
	}
	if e.FoundInf.Known {
		t.do(step.Operation{Kind: step.Check, Event: op.Event, Attempt: op.Attempt, On: op.On, FoundInf: e.FoundInf})
	}
	switch {
	case step.Is(e.Called, false) || step.Is(e.FoundInf, true) && (e.Fused || step.Is(e.Applied, false)):
		op.Outcome = step.Skipped
	case step.Is(e.Applied, false):
		op.Outcome = step.Idle
	}
	t.do(op)
}

// stillScaled reports whether nothing has unscaled what a scaler's step is about to take.
func (t *teller) stillScaled(on step.Set) bool {
	for _, p := range t.story.Machine.Parts(on) {
		if p.State != step.Filled {
			continue
		}
		if _, scaled := p.Unit().IsScale(); !scaled {
			return false
		}
		if slices.ContainsFunc(p.Words, func(w step.Word) bool { return w.Op.Kind == step.Unscale }) {
			return false
		}
	}
	return true
}

// move compares the gradients of a set of parameters in two snapshots.
func (t *teller) move(before, after Content, on step.Set) Move {
	m := Move{}
	for _, i := range on.Members() {
		name := t.u.Names[i]
		b, ok1 := before[name]
		a, ok2 := after[name]
		if !ok1 || !ok2 {
			continue
		}
		if c, ok := t.book.Change(b, a); ok {
			m[i] = c
		}
	}
	return m
}

func sortedIndices[V any](m map[int]V) []int {
	out := make([]int, 0, len(m))
	for i := range m {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}
