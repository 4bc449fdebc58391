package step

import "slices"

// Transition is the meaning of one operation: what has to hold before it, and
// what it does to the parts it acts on.
type Transition struct {
	Kind  Kind
	Says  string // the effect, for readers
	Needs []Requirement
	apply func(p *Part, op *Operation)
}

// Requirement is a precondition; the rule is what its failure is called.
type Requirement struct {
	Rule   string
	Says   string
	broken func(p *Part, op *Operation) bool
}

// Table is the language: every operation that touches a gradient buffer, with
// its preconditions and its effect. The machine that judges recordings runs it.
// Where a unit is not known no precondition about units fails.
var Table = []Transition{
	{
		Kind: ZeroGrad,
		Says: "the buffer is empty",
		apply: func(p *Part, op *Operation) {
			dropped := Maybe[int]{}
			if p.State == Filled {
				dropped = op.Attempt
			}
			*p = Part{On: p.On, State: Empty, Dropped: dropped}
		},
	},
	{
		Kind: Backward,
		Says: "a term with the unit of the root's scale is added; on an empty or consumed buffer a new window begins",
		Needs: []Requirement{
			{
				Rule: "OC4001", Says: "nothing has clipped the partial sum that it adds to",
				broken: func(p *Part, op *Operation) bool {
					return op.Certain && p.accumulates(op) && p.clipped()
				},
			},
			{
				Rule: "OC4002", Says: "nothing has unscaled the partial sum that it adds to",
				broken: func(p *Part, op *Operation) bool {
					return op.Certain && p.accumulates(op) && p.last(Unscale) >= 0
				},
			},
			{
				Rule: "OC3003", Says: "the scale has stood still since the first micro-batch of the sum",
				broken: func(p *Part, op *Operation) bool {
					if !op.Certain || !p.accumulates(op) {
						return false
					}
					if p.last(UpdateScale) >= 0 && p.Terms[len(p.Terms)-1].Certain {
						return true
					}
					now, ok := op.Term.IsScale()
					for _, t := range p.Terms {
						if was, scaled := t.Unit.IsScale(); ok && scaled && t.Certain && !t.Stale && was != now {
							return true
						}
					}
					return false
				},
			},
		},
		apply: (*Part).add,
	},
	{
		Kind: Unscale,
		Says: "every term is divided by the scale; this rank's verdict is joined",
		Needs: []Requirement{
			{
				Rule: "OC1002", Says: "the gradients carry the scale: S^1",
				broken: func(p *Part, op *Operation) bool {
					k, _, ok := p.Unit().Exponent()
					return ok && k <= 0 && op.Divisor != 1
				},
			},
			{
				Rule: "OC3004", Says: "the scale has not been updated since the backward",
				broken: func(p *Part, op *Operation) bool {
					return p.last(UpdateScale) > max(p.last(Backward), -1)
				},
			},
		},
		apply: func(p *Part, op *Operation) {
			for i := range p.Terms {
				p.Terms[i].Unit = p.Terms[i].Unit.Times(op.Divisor, -1)
			}
			if op.FoundInf.Known {
				p.Verdict.take(op.FoundInf.Value, op.Event)
			}
		},
	},
	{
		Kind: Check,
		Says: "a verdict is joined",
		apply: func(p *Part, op *Operation) {
			if op.FoundInf.Known {
				p.Verdict.take(op.FoundInf.Value, op.Event)
			}
		},
	},
	{
		Kind: Clip,
		Says: "the buffer is multiplied by min(1, threshold/norm), or cut at the threshold",
		Needs: []Requirement{
			{
				Rule: "OC1001", Says: "threshold and gradients have the same unit",
				broken: func(p *Part, op *Operation) bool {
					u := p.Unit()
					return !op.Inert && u.Known() && op.Threshold.Known() && !u.Equal(op.Threshold)
				},
			},
			{
				Rule: "OC1006", Says: "there is something to clip",
				broken: func(p *Part, op *Operation) bool {
					return !op.Inert && op.Certain && p.State == Empty
				},
			},
			{
				Rule: "OC1007", Says: "the optimizer has not consumed the gradients yet",
				broken: func(p *Part, op *Operation) bool {
					return !op.Inert && !op.Refilled && op.Certain && p.State == Consumed &&
						p.stepped(op.Attempt) && !p.clipped()
				},
			},
		},
	},
	{
		Kind: Step,
		Says: "the optimizer consumes the buffer, or is skipped and moves nothing",
		Needs: []Requirement{
			{
				Rule: "OC1003", Says: "the gradients are true gradients: S^0",
				broken: func(p *Part, op *Operation) bool {
					k, _, ok := p.Unit().Exponent()
					return op.Outcome == Applied && p.State == Filled && ok && k == 1
				},
			},
			{
				Rule: "OC1004", Says: "nothing multiplied them by the scale a second time",
				broken: func(p *Part, op *Operation) bool {
					k, _, ok := p.Unit().Exponent()
					return op.Outcome == Applied && p.State == Filled && ok && k > 1
				},
			},
			{
				Rule: "OC1005", Says: "they were divided by the scale that they carried",
				broken: func(p *Part, op *Operation) bool {
					_, _, one := p.Unit().Exponent()
					return op.Outcome == Applied && p.State == Filled && p.Unit().Known() && !one
				},
			},
			{
				Rule: "OC1009", Says: "they were not zeroed since the backward",
				broken: func(p *Part, op *Operation) bool {
					return op.Outcome == Applied && op.Certain && p.State == Empty && p.Dropped.Known && p.Dropped == op.Attempt
				},
			},
			{
				Rule: "OC1010", Says: "they are this step's alone",
				broken: func(p *Part, op *Operation) bool {
					return op.Outcome != Idle && p.State == Filled && slices.ContainsFunc(p.Terms, func(t Term) bool { return t.Stale })
				},
			},
			{
				Rule: "OC1012", Says: "no step has consumed them",
				broken: func(p *Part, op *Operation) bool {
					return op.Outcome == Applied && op.Certain && p.State == Consumed && p.stepped(op.Attempt)
				},
			},
			{
				Rule: "OC2001", Says: "a finiteness verdict was taken on them, and it was finite",
				broken: func(p *Part, op *Operation) bool {
					return op.Outcome == Applied && p.State == Filled && op.Scaled && (!p.Verdict.Taken || p.Verdict.NonFinite)
				},
			},
		},
		apply: func(p *Part, op *Operation) { p.State = Consumed },
	},
	{
		Kind: UpdateScale,
		Says: "the scale moves; gradients that carry the old one keep it",
	},
	{Kind: Norm, Says: "a norm is read; nothing moves"},
	{
		Kind: Reduce,
		Says: "the ranks' gradients are combined",
		Needs: []Requirement{
			{
				Rule: "OC4003", Says: "nothing has clipped this rank's part",
				broken: func(p *Part, op *Operation) bool {
					return op.Certain && p.State == Filled && p.clipped()
				},
			},
		},
	},
	{
		Kind: GradOp,
		Says: "the buffer is changed by something else",
		apply: func(p *Part, op *Operation) {
			for i := range p.Terms {
				if op.Multiplier != 0 {
					p.Terms[i].Unit = p.Terms[i].Unit.Times(op.Multiplier, 1)
				}
			}
			if op.Muddles {
				p.Terms = []Term{{Unit: UnknownUnit, Attempt: op.Attempt, Event: op.Event}}
			}
		},
	},
}

var transitions = func() map[Kind]*Transition {
	m := map[Kind]*Transition{}
	for i := range Table {
		m[Table[i].Kind] = &Table[i]
	}
	return m
}()

// accumulates reports whether a backward adds to the window that the part is in.
func (p *Part) accumulates(op *Operation) bool {
	if p.State != Filled || Is(op.Fresh, true) {
		return false
	}
	for _, t := range p.Terms {
		if t.Attempt == op.Attempt {
			return true
		}
	}
	return false
}

// add is the effect of a backward.
func (p *Part) add(op *Operation) {
	if !p.accumulates(op) {
		// Numbers of an earlier attempt that were seen in the buffer are in the
		// sum: stale if their optimizer has stepped since, or if they are of
		// another loss, whose turn is over; else a share of the sum that took an
		// attempt of its own.
		var kept []Term
		if Is(op.Fresh, false) {
			for _, t := range p.Terms {
				t.Stale = t.Stale || p.State == Consumed || t.Event < op.lastStep && t.Site != op.Site
				kept = append(kept, t)
			}
		}
		word := p.Words[len(p.Words)-1] // the backward itself
		word.Unit = UnknownUnit         // what it found is of another window
		*p = Part{On: p.On, State: Filled, Terms: kept, Words: []Word{word}}
	}
	p.Terms = append(p.Terms, Term{
		Unit: op.Term, Scalers: op.Scalers, Attempt: op.Attempt, Event: op.Event, Site: op.Site, Certain: op.Certain,
	})
}

// clipped reports whether a threshold has limited the sum in this window.
func (p *Part) clipped() bool {
	for _, w := range p.Words {
		if w.Op.Kind == Clip && !w.Op.Inert && !w.Op.Partwise && p.wasBeforeStep(w) {
			return true
		}
	}
	return false
}

// stepped reports whether the window's gradients were consumed at an attempt.
func (p *Part) stepped(attempt Maybe[int]) bool {
	s := p.last(Step)
	return s >= 0 && p.Words[s].Op.Outcome == Applied && p.Words[s].Op.Attempt == attempt
}

// wasBeforeStep reports whether the word stands before the step of its window.
func (p *Part) wasBeforeStep(w Word) bool {
	s := p.last(Step)
	return s < 0 || w.Op.Event < p.Words[s].Op.Event
}
