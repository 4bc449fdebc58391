package evidence

import (
	"fmt"
	"slices"

	"ordercheck/step"
)

// act is one operation that the numbers add: gradients changed between two
// calls, and no call explains it.
type act struct {
	kind   actKind
	on     step.Set
	from   step.Set // copied: the parameters copied from
	factor float64  // shrunk, multiplied
	move   Move     // of masters: from the gradients that they were filled with
}

type actKind uint8

const (
	unscaled   actKind = iota // divided by the scale that they carry, or by the one in force
	shrunk                    // limited by something: a clip made by hand
	multiplied                // by some other number
	zeroed
	rescaled  // multiplied by the scale that they carry
	copied    // into a float32 master
	disturbed // a term was added; most of the gradient is still there
	replaced  // nothing is known any more
)

func (a act) String() string { return fmt.Sprintf("%d%v%v", a.kind, a.on.Members(), a.from.Members()) }

// between looks for changes between the last call that may move gradients and
// the next one. Where nobody looked, what was seen at other attempts between
// the same lines is taken to have happened here too.
func (t *teller) between(e *step.Event, before Content, looked bool) {
	if !t.awaited(e) {
		return
	}
	place := siteOf(t.prev, e)
	if looked && t.known {
		acts, told := t.changes(e, before)
		if told {
			move := t.move(t.grads, before, t.u.All())
			if move.Before().NonFinite == 0 { // an overflow shows only a part
				t.habits.saw(place, acts)
			}
			t.perform(e, acts, move)
			return
		}
	}
	switch acts, how := t.habits.at(place); how {
	case always:
		t.perform(e, acts, nil)
	case varies:
		t.muddle(e)
	case never: // nobody looked at this place
		t.claim(e)
	}
}

// claim says that only calls speak for the gradients that wait, where that has
// not just been said.
func (t *teller) claim(e *step.Event) {
	var on step.Set
	for _, p := range t.story.Machine.Parts(t.u.All()) {
		if n := len(p.Words); n == 0 || !p.Words[n-1].Op.Claimed {
			on = on.Or(p.On)
		}
	}
	t.do(step.Operation{Kind: step.GradOp, Event: len(t.story.Events), Attempt: e.Attempt, On: on, Claimed: true})
}

// awaited reports whether gradients wait here for what e does with them.
func (t *teller) awaited(e *step.Event) bool {
	switch e.Kind {
	case step.Reduce, step.Unscale, step.Clip, step.Step, step.GradOp, step.Backward:
	default:
		return false
	}
	if t.prev == nil {
		return false
	}
	for _, p := range t.story.Machine.Parts(t.u.All()) {
		if p.State == step.Filled && slices.ContainsFunc(p.Terms, func(term step.Term) bool { return term.Attempt == e.Attempt }) {
			return true
		}
	}
	return false
}

// muddle says that nothing is known any more of gradients that wait.
func (t *teller) muddle(e *step.Event) {
	t.do(step.Operation{Kind: step.GradOp, Event: len(t.story.Events), Attempt: e.Attempt, On: t.u.All(), Muddles: true, Claimed: true})
}

// changes says what happened to the gradients from the last call to now. told is
// false where the numbers cannot say, because too little of them is finite.
func (t *teller) changes(e *step.Event, now Content) (acts []act, told bool) {
	acts, told = t.masterCopies(e, now)
	var filled step.Set // masters that were filled in this gap
	for _, a := range acts {
		filled = filled.Or(a.on)
	}
	for _, p := range t.story.Machine.Parts(t.u.All().Minus(filled)) {
		if p.State != step.Filled {
			continue
		}
		scale := t.scaleOf(p)
		move := t.move(t.grads, now, p.On)
		var gone []int
		for _, i := range p.On.Members() {
			name := t.u.Names[i]
			if _, was := t.grads[name]; was {
				if _, is := now[name]; !is {
					gone = append(gone, i)
				}
			}
		}
		if len(gone) > 0 && len(gone) == p.On.Len() {
			continue // a snapshot of other parameters, or gradients dropped: nothing waits here
		}
		found, ok := t.explain(e, p, scale, move)
		told = told && ok
		acts = append(acts, found...)
	}
	return acts, told
}

// scaleOf is the scale that a part carries, or else the one in force.
func (t *teller) scaleOf(p *step.Part) float64 {
	if s, ok := p.Unit().IsScale(); ok {
		return s
	}
	if len(p.Terms) > 0 {
		for i := len(t.story.Events) - 1; i >= 0; i-- { // the last backward's factor, by hand
			if e := t.story.Events[i]; e.Kind == step.Backward {
				if t.story.HandScale && e.Factor.Known {
					return e.Factor.Value
				}
				break
			}
		}
		for _, id := range p.Terms[len(p.Terms)-1].Scalers {
			return t.scales.current[id]
		}
	}
	return 0
}

// leastAmbiguous is the smallest scale by which a second division is told from
// a mean over micro-batches or ranks.
const leastAmbiguous = 64

// explain names the change of one part: all its tensors together if one number
// explains them, else tensor by tensor.
func (t *teller) explain(e *step.Event, p *step.Part, scale float64, move Move) (acts []act, told bool) {
	if !telling(move) {
		return nil, false
	}
	if move.Still() {
		return nil, true
	}
	hidden := 0
	for _, c := range move {
		hidden += c.Hidden
	}
	f, ok := move.Factor()
	switch {
	case ok && hidden == 0:
		return t.explainFactor(e, p, p.On, scale, f, slackOf(move))
	case limitOf(move):
		return []act{{kind: shrunk, on: p.On}}, true
	case hidden > 0 && !ok:
		return []act{{kind: replaced, on: p.On}}, true
	case hidden > 0: // what was not finite was replaced, and the rest perhaps divided
		acts, _ = t.explainFactor(e, p, p.On, scale, f, slackOf(move))
		return append(acts, act{kind: disturbed, on: p.On}), true
	}
	if after := move.After(); after.Zero() {
		return []act{{kind: zeroed, on: p.On}}, true
	}
	// Tensor by tensor: those that share a factor are told together.
	byFactor := map[float64][]int{}
	var order []float64
	var rest []int
	small := true
	for _, i := range sortedIndices(move) {
		c := move[i]
		f, ok := c.Factor()
		switch {
		case !ok && c.Used == 0 && c.Lost == 0 && c.Poisoned == 0:
			continue
		case !ok:
			rest = append(rest, i)
			continue
		}
		match := f
		for _, g := range order {
			if near(f, g, c.Format.Slack()) {
				match = g
			}
		}
		if byFactor[match] == nil {
			order = append(order, match)
		}
		byFactor[match] = append(byFactor[match], i)
		small = small && f <= 1+c.Format.Slack()
	}
	if len(rest)+len(order) == 0 {
		return nil, false
	}
	if len(rest) > 0 {
		return t.explainRest(move, p.On, scale)
	}
	slack := slackOf(move)
	for _, f := range order {
		if scale > 1 && (near(f*scale, 1, slack) || near(f*scale*scale, 1, slack)) {
			for _, f := range order {
				found, _ := t.explainFactor(e, p, step.SetOf(byFactor[f]...), scale, f, slack)
				acts = append(acts, found...)
			}
			return acts, true
		}
	}
	if _, carries := p.Unit().IsScale(); carries && slices.Max(order)*scale <= 1+slack && !t.unscaledLater(p.On) {
		return []act{{kind: unscaled, on: p.On}, {kind: shrunk, on: p.On}}, true
	}
	if small {
		return []act{{kind: shrunk, on: p.On}}, true
	}
	return []act{{kind: multiplied, on: p.On}}, true
}

// telling reports whether some element could show a factor.
func telling(m Move) bool {
	for _, c := range m {
		if c.Used > 0 || c.Lost > 0 || c.Poisoned+c.Hidden > 0 {
			return true
		}
	}
	return false
}

// explainFactor names a multiplication of the parameters on by f.
func (t *teller) explainFactor(e *step.Event, p *step.Part, on step.Set, scale, f, slack float64) ([]act, bool) {
	_, carries := p.Unit().IsScale()
	divides := scale > 1 && (carries || scale >= leastAmbiguous)
	switch {
	case near(f, 1, slack):
		return nil, true
	case divides && near(f*scale, 1, slack):
		return []act{{kind: unscaled, on: on}}, true
	case divides && near(f*scale*scale, 1, slack):
		return []act{{kind: unscaled, on: on}, {kind: unscaled, on: on}}, true
	case isMean(f, slack) && !(carries && f*scale < 1 && !t.unscaledLater(on)):
		return []act{{kind: multiplied, on: on, factor: f}}, true
	case carries && isMean(f*scale, slack):
		return []act{{kind: unscaled, on: on}, {kind: multiplied, on: on, factor: f * scale}}, true
	case carries && scale >= leastAmbiguous && near(f, scale, slack):
		return []act{{kind: rescaled, on: on}}, true
	case carries && f*scale < 1 && !t.unscaledLater(on):
		return []act{{kind: unscaled, on: on}, {kind: shrunk, on: on, factor: f * scale}}, true
	case f > 0 && f < 1:
		return []act{{kind: shrunk, on: on, factor: f}}, true
	}
	return []act{{kind: multiplied, on: on, factor: f}}, true
}

// explainRest judges a change that no factor explains by how much of the gradient is left.
func (t *teller) explainRest(move Move, on step.Set, scale float64) ([]act, bool) {
	var dot, before, after float64
	for _, i := range sortedIndices(move) {
		c := move[i]
		dot, before, after = dot+c.Dot, before+c.Sq[0], after+c.Sq[1]
	}
	if before == 0 || after == 0 {
		return nil, false
	}
	f, cos := dot/before, dot/sqrt(before)/sqrt(after)
	switch {
	case cos < 0.9:
		return []act{{kind: replaced, on: on}}, true
	case scale > 4 && near(f*scale, 1, 0.1):
		return []act{{kind: unscaled, on: on}, {kind: disturbed, on: on}}, true
	case near(f, 1, 0.1):
		return []act{{kind: disturbed, on: on}}, true
	}
	return []act{{kind: replaced, on: on}}, true
}

// masterCopies finds float32 masters that were filled from their FP16
// parameters, as they are or divided by the scale.
func (t *teller) masterCopies(e *step.Event, now Content) (acts []act, told bool) {
	type source struct {
		part   *step.Part
		factor float64
	}
	copies := map[source]*act{}
	var order []source
	slack := 0.0
	told = true
	for _, from := range sortedIndices(t.u.master) {
		to := t.u.master[from]
		master, ok := now[t.u.Names[to]]
		if !ok {
			continue
		}
		if old, had := t.grads[t.u.Names[to]]; had {
			c, ok := t.book.Change(old, master)
			if ok && c.Same() {
				continue
			}
			if _, inPlace := c.Factor(); ok && inPlace && t.filledAt(to, e) {
				continue // it was filled before, and is multiplied now
			}
		}
		c, ok := t.copied(from, now, master)
		if !ok {
			continue
		}
		if !telling(Move{0: c}) {
			told = false
			continue
		}
		src := source{part: t.story.Machine.PartOf(from)}
		if src.factor, ok = c.Factor(); !ok || src.part.State != step.Filled {
			acts = append(acts, act{kind: replaced, on: step.SetOf(to)})
			continue
		}
		slack = max(slack, c.Format.Slack())
		for _, s := range order {
			if s.part == src.part && near(s.factor, src.factor, slack) {
				src = s
			}
		}
		if copies[src] == nil {
			copies[src] = &act{kind: copied}
			order = append(order, src)
		}
		a := copies[src]
		if a.move == nil {
			a.move = Move{}
		}
		a.move[to] = c
		a.on, a.from = a.on.Or(step.SetOf(to)), a.from.Or(step.SetOf(from))
	}
	for _, src := range order {
		a := *copies[src]
		acts = append(acts, a)
		if !near(src.factor, 1, slack) {
			found, _ := t.explainFactor(nil, src.part, a.on, t.scaleOf(src.part), src.factor, slack)
			for i := range found {
				found[i].move = a.move
			}
			acts = append(acts, found...)
		}
	}
	return acts, told
}

// filledAt reports whether a parameter's gradients wait since this attempt.
func (t *teller) filledAt(i int, e *step.Event) bool {
	p := t.story.Machine.PartOf(i)
	return p.State == step.Filled && slices.ContainsFunc(p.Terms, func(term step.Term) bool { return term.Attempt == e.Attempt })
}

// copied compares a master with its FP16 parameter's gradients: as they were
// after the last call, or as they are now, whichever one factor explains.
func (t *teller) copied(from int, now Content, master Ref) (c Change, ok bool) {
	for _, side := range []Content{t.grads, now} {
		model, there := side[t.u.Names[from]]
		if !there {
			continue
		}
		found, readable := t.book.Change(model, master)
		if !readable {
			continue
		}
		if _, fits := found.Factor(); fits || !ok {
			c, ok = found, true
			if fits {
				break
			}
		}
	}
	return c, ok
}

// perform adds the operations of a change to the story.
func (t *teller) perform(e *step.Event, acts []act, move Move) {
	for _, a := range acts {
		inferred := step.Event{
			Seq: e.Seq, Rank: e.Rank, Attempt: e.Attempt, Micro: e.Micro, Inferred: true,
			File: t.prev.File, Line: t.prev.Line, Recorded: e.Recorded,
		}
		op := step.Operation{Attempt: e.Attempt, On: a.on, Certain: true}
		switch a.kind {
		case unscaled:
			op.Kind, op.Divisor = step.Unscale, t.divisorOf(a.on)
			inferred.Scale = step.Some(op.Divisor)
			if op.Divisor == 0 {
				op.Kind, op.Muddles = step.GradOp, true
			}
		case shrunk:
			if t.carriesScale(a.on) && !t.unscaledLater(a.on) {
				// Divided by their norm, say, and never by the scale: what was
				// meant, and in which unit the result is, cannot be told.
				op.Kind, op.Muddles = step.GradOp, true
				break
			}
			op.Kind = step.Clip
			op.Threshold = t.threshold(len(t.story.Events))
			t.estimate(&inferred, e, a, move)
		case rescaled:
			op.Kind, op.Multiplier = step.GradOp, t.divisorOf(a.on)
		case zeroed:
			op.Kind = step.ZeroGrad
		case copied:
			t.story.Machine.Copy(a.from, a.on)
			continue
		case replaced:
			op.Kind, op.Muddles = step.GradOp, true
		default:
			op.Kind = step.GradOp
		}
		inferred.Kind, inferred.Op = op.Kind, op.Kind.String()
		op.Event = t.add(&inferred)
		seen := move
		if a.move != nil {
			seen = a.move
		}
		if only := seen.Only(a.on); len(only) > 0 && move != nil {
			t.story.Moves[op.Event] = only
		}
		t.do(op)
	}
}

// divisorOf is the scale that waiting gradients carry, or the one in force.
func (t *teller) divisorOf(on step.Set) float64 {
	for _, p := range t.story.Machine.Parts(on) {
		if s := t.scaleOf(p); s != 0 {
			return s
		}
	}
	return 0
}

func (t *teller) carriesScale(on step.Set) bool {
	for _, p := range t.story.Machine.Parts(on) {
		if _, carries := p.Unit().IsScale(); carries {
			return true
		}
	}
	return false
}

// unscaledLater reports whether a call before the next step divides these
// gradients by their scale.
func (t *teller) unscaledLater(on step.Set) bool {
	for i := t.at; i < len(t.rank.Events); i++ {
		e := &t.rank.Events[i]
		if e.Attempt != t.rank.Events[t.at].Attempt || e.Kind == step.ZeroGrad && i > t.at {
			return false
		}
		if e.Kind != step.Unscale && e.Kind != step.Step || e.Via == "optimizer" && e.Kind == step.Step {
			continue
		}
		if i == t.at && e.Kind == step.Step && !e.GradScale.Known {
			return false // what stands before a step is what it takes
		}
		if owned, known := t.u.Owned(e.Optimizer); known && owned.And(on).Empty() || !t.scales.counts(e) {
			continue
		}
		return e.Kind == step.Unscale || e.GradScale.Known || !e.Fused
	}
	return false
}

func slackOf(m Move) float64 {
	var s float64
	for _, c := range m {
		s = max(s, c.Format.Slack())
	}
	return s
}

// limitOf reports whether larger elements were cut to a limit: the same in
// every tensor that was cut.
func limitOf(m Move) bool {
	_, ok := cutOf(m)
	return ok
}

func cutOf(m Move) (limit float64, ok bool) {
	for _, i := range sortedIndices(m) {
		c := m[i]
		if c.Same() {
			if c.Before.Max > 0 && limit > 0 && c.Before.Max > limit {
				return 0, false
			}
			continue
		}
		l, cut := c.Cut()
		if !cut || limit != 0 && l != limit {
			return 0, false
		}
		limit = l
	}
	return limit, limit > 0
}
