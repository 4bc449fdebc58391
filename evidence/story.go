package evidence

import (
	"ordercheck/record"
	"ordercheck/step"
)

// Story is what happened on one rank: its calls, the operations that the
// numbers add to them, and what the machine of package step makes of both.
type Story struct {
	Rank     int
	Ranks    int               // of the run
	Script   string            // that was recorded
	Dtypes   map[string]string // of parameters, as the manifest names them
	Universe *Universe
	Book     *Book
	Events   []*step.Event
	// Moves holds, by event, what an operation did to gradients where both sides
	// were looked at: the call itself, or the change that no call explains.
	Moves   map[int]Move
	Machine *step.Machine

	index *index

	Off    map[string]bool   // scalers that are switched off
	SameAs map[string]string // tied parameters
	Shards bool              // ranks own different parameters

	// ScaledLoss: some loss is multiplied by a scale. HandScale: by the script itself.
	// MaybeHand: losses are multiplied by a large power of two, and nothing shows that it is one.
	ScaledLoss, HandScale, MaybeHand bool
	// Gaps: calls are missing from the record.
	Gaps bool
	// Windows: attempts are numbers of windows, which nobody but this program knows.
	Windows bool
	// Looked: gradients were looked at somewhere.
	Looked bool
}

// Move is the change of gradients over one operation, by parameter.
type Move map[int]Change

// Only returns the part of a move within s.
func (m Move) Only(s step.Set) Move {
	out := Move{}
	for i, c := range m {
		if s.Has(i) {
			out[i] = c
		}
	}
	return out
}

// Before and After join the statistics over all tensors, in the order of parameters.
func (m Move) Before() Stats { return m.join(func(c Change) Stats { return c.Before }) }
func (m Move) After() Stats  { return m.join(func(c Change) Stats { return c.After }) }

func (m Move) join(of func(Change) Stats) Stats {
	var s Stats
	for _, i := range sortedIndices(m) {
		s.join(of(m[i]))
	}
	return s
}

// Still reports whether nothing moved.
func (m Move) Still() bool {
	for _, c := range m {
		if !c.Same() {
			return false
		}
	}
	return true
}

// Seen is what an operation on the parameters opOn did to the gradients of a
// part, as far as somebody looked. What was done to FP16 gradients counts for the
// masters that were filled with them.
func (s *Story) Seen(event int, opOn, on step.Set) Move {
	target := opOn.And(on)
	if target.Empty() {
		target = opOn.And(s.Universe.sources(on))
	}
	return s.Moves[event].Only(target)
}

// Factor is the one number that all tensors were multiplied by.
func (m Move) Factor() (float64, bool) {
	var lo, hi, slack float64
	seen := false
	for _, i := range sortedIndices(m) {
		c := m[i]
		if c.Used == 0 && c.Lost == 0 {
			continue // zeros, or nothing finite: any factor fits
		}
		f, ok := c.Factor()
		if !ok {
			return 0, false
		}
		if !seen {
			lo, hi, slack, seen = f, f, c.Format.Slack(), true
			continue
		}
		lo, hi, slack = min(lo, f), max(hi, f), max(slack, c.Format.Slack())
	}
	if !seen || hi-lo > slack*max(hi, -lo) {
		return 0, false
	}
	return (lo + hi) / 2, true
}

// Tell turns the calls of one rank into its story. It tells it three times: to
// learn what code without calls does where somebody looked, then with that
// where nobody did, then with the units of the thresholds that follow.
func Tell(run *record.Run, rank record.Rank, book *Book, declared Declared) *Story {
	t := newTeller(run, rank, book)
	t.tell()
	t.habits.settle()
	s := t.tell()
	t.thresholds = thresholdUnits(s, declared)
	return t.tell()
}

// Declared is what the author intends, as far as evidence needs it.
type Declared struct {
	MaxNorm step.Maybe[float64] // in the unit of true gradients
}
