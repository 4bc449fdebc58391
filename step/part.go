package step

import "slices"

// Part is a set of parameters whose gradients have had the same history since
// they were last emptied: the buffer of an optimizer, or as much of it as was
// treated alike. Its content is a sum of terms, each with a unit.
type Part struct {
	On      Set
	State   State
	Terms   []Term
	Words   []Word // what was done to it since its first term, in order
	Verdict Verdict
	// Dropped is the attempt at which gradients that waited here were zeroed.
	Dropped Maybe[int]
	// Claimed says that the calls alone speak for this window: somewhere in it
	// nobody looked, here or at another attempt, whether code that makes no call
	// changed the gradients.
	Claimed bool
}

// State is the freshness of a part.
type State uint8

const (
	Unseen   State = iota // nothing is known of it yet
	Empty                 // zeroed
	Filled                // a backward filled it, nothing has consumed it
	Consumed              // an optimizer took it, or skipped it; it may still hold numbers
)

var stateNames = [...]string{"unseen", "empty", "filled", "consumed"}

func (s State) String() string { return stateNames[s] }

// Term is one summand of a gradient buffer: what one backward added.
type Term struct {
	Unit    Unit
	Scalers []string // whose scale the root was multiplied by
	Attempt Maybe[int]
	Event   int    // the backward
	Site    string // its place in the script
	Certain bool   // it is known that this backward fills this part
	Stale   bool   // an earlier window's, still in the sum
}

// Word is one operation of a part's sentence.
type Word struct {
	Op       *Operation
	Unit     Unit // of the part before the operation
	Breaches []Breach
}

// alike reports whether an operation found the same in two parts.
func (w *Word) alike(v *Word) bool {
	return w.Op == v.Op && w.Unit.same(v.Unit) &&
		slices.EqualFunc(w.Breaches, v.Breaches, func(a, b Breach) bool { return a.Requirement == b.Requirement })
}

// Verdict is what is known of the finiteness of a part's gradients.
type Verdict struct {
	Taken     bool
	NonFinite bool // the OR over all that was found since the window began
	Event     int  // the first that found something, else the last
}

func (v *Verdict) take(found bool, event int) {
	if !v.NonFinite {
		v.Event = event
	}
	v.Taken = true
	v.NonFinite = v.NonFinite || found
}

// Unit is the unit of the part's sum: known if all terms that may be in it
// agree. Stale terms are left out; a rule of their own speaks of them.
func (p *Part) Unit() Unit {
	unit, seen := UnknownUnit, false
	for _, t := range p.Terms {
		switch {
		case t.Stale:
		case !seen:
			unit, seen = t.Unit, true
		case !unit.Equal(t.Unit):
			return UnknownUnit
		}
	}
	return unit
}

// has reports whether a term of the window carries the scaler's scale.
func (p *Part) has(scaler string) bool {
	for _, t := range p.Terms {
		if !t.Stale && slices.Contains(t.Scalers, scaler) {
			return true
		}
	}
	return false
}

// last returns the index of the last word of that kind, -1 if there is none.
func (p *Part) last(k Kind) int {
	for i := len(p.Words) - 1; i >= 0; i-- {
		if p.Words[i].Op.Kind == k {
			return i
		}
	}
	return -1
}

// waitsSince reports whether the gradients are all of other attempts than an
// operation on them: the backward of its attempt is missing from the record.
func (p *Part) waitsSince(op *Operation) bool {
	if p.State != Filled || !op.Attempt.Known {
		return false
	}
	for _, t := range p.Terms {
		if !t.Attempt.Known || t.Attempt == op.Attempt {
			return false
		}
	}
	return true
}

// forget makes the content unknown, from an operation on.
func (p *Part) forget(op *Operation) {
	*p = Part{
		On: p.On, State: Filled, Claimed: true,
		Terms: []Term{{Unit: UnknownUnit, Attempt: op.Attempt, Event: op.Event}},
	}
}

// end is a number made of the last words: parts that are alike have the same.
func (p *Part) end() uint64 {
	h := uint64(p.State)
	for i := max(0, len(p.Words)-8); i < len(p.Words); i++ {
		op := p.Words[i].Op
		h = h*0x9E3779B97F4A7C15 + uint64(op.Event)<<8 + uint64(op.Kind)
	}
	return h
}

// alike reports whether two parts have the same history.
func (p *Part) alike(q *Part) bool {
	if p.State != q.State || p.Claimed != q.Claimed || p.Dropped != q.Dropped || p.Verdict != q.Verdict ||
		len(p.Words) != len(q.Words) || len(p.Terms) != len(q.Terms) {
		return false
	}
	for i := len(p.Words) - 1; i >= 0; i-- {
		if !p.Words[i].alike(&q.Words[i]) {
			return false
		}
	}
	for i := range p.Terms {
		a, b := p.Terms[i], q.Terms[i]
		if a.Event != b.Event || a.Stale != b.Stale || !a.Unit.same(b.Unit) {
			return false
		}
	}
	return true
}

// split returns the part within s and the part outside; either may be nil.
func (p *Part) split(s Set) (in, out *Part) {
	switch {
	case p.On.Within(s):
		return p, nil
	case !p.On.Meets(s):
		return nil, p
	}
	other := *p
	other.On = p.On.Minus(s)
	other.Terms = append([]Term(nil), p.Terms...)
	other.Words = append([]Word(nil), p.Words...)
	p.On = p.On.And(s)
	return p, &other
}

// copy returns a part that later operations leave alone.
func (p *Part) copy() Part {
	c := *p
	c.Terms = append([]Term(nil), p.Terms...)
	c.Words = append([]Word(nil), p.Words...)
	return c
}
