package step

import "slices"

// Machine reads the operations of one rank in order and keeps, for every
// parameter, what its gradient is made of. It runs Table; it judges nothing
// else.
type Machine struct {
	Consumptions []Consumption
	// Loose are failed preconditions of operations on gradients that nothing
	// consumes any more, and of the scale itself.
	Loose []Breach

	parts     []*Part // disjoint; together the universe
	scalers   map[string]*scalerState
	backwards int // of all
	lastStep  int // event of the last step, -1 before it
	byEnd     map[uint64]*Part
}

type scalerState struct {
	updated   bool       // at least once
	attempt   Maybe[int] // of the last update
	backwards int        // of losses with its scale, or with one that is not known, since then
}

// NewMachine returns a machine over a universe of n parameters.
func NewMachine(n int) *Machine {
	m := &Machine{scalers: map[string]*scalerState{}, lastStep: -1, byEnd: map[uint64]*Part{}}
	if n > 0 {
		var all Set
		for i := range n {
			all = all.with(i)
		}
		m.parts = []*Part{{On: all}}
	}
	return m
}

// Parts returns the parts within s, splitting those that straddle it. They are
// the machine's own: a caller only reads.
func (m *Machine) Parts(s Set) []*Part {
	var in []*Part
	for _, p := range m.parts[:len(m.parts):len(m.parts)] {
		inside, outside := p.split(s)
		if inside != nil {
			in = append(in, inside)
		}
		if inside != nil && outside != nil {
			m.parts = append(m.parts, outside)
		}
	}
	return in
}

// PartOf returns the part that holds a parameter.
func (m *Machine) PartOf(i int) *Part {
	for _, p := range m.parts {
		if p.On.Has(i) {
			return p
		}
	}
	return nil
}

// needBackward is the one precondition of the scale itself rather than of a buffer.
var needBackward = Requirement{
	Rule: "OC3003", Says: "a backward of this scaler ran since its last update",
}

// Do performs one operation.
func (m *Machine) Do(op *Operation) {
	t := transitions[op.Kind]
	if t == nil {
		return
	}
	switch op.Kind {
	case Step:
		defer func() { m.lastStep = op.Event }()
	case Backward:
		m.backwards++
		op.lastStep = m.lastStep
		for id, s := range m.scalers {
			if len(op.Scalers) == 0 || slices.Contains(op.Scalers, id) {
				s.backwards++
			}
		}
	case UpdateScale:
		m.update(op)
		return
	}
	var c *Consumption
	if op.Kind == Step {
		m.Consumptions = append(m.Consumptions, Consumption{
			Event: op.Event, Attempt: op.Attempt, Optimizer: op.Optimizer, Outcome: op.Outcome,
		})
		c = &m.Consumptions[len(m.Consumptions)-1]
	}
	for _, p := range m.Parts(op.On) {
		if op.Kind != Backward && op.Kind != ZeroGrad && p.waitsSince(op) {
			p.forget(op)
		}
		word := Word{Op: op, Unit: p.Unit()}
		for i := range t.Needs {
			need := &t.Needs[i]
			if need.broken(p, op) {
				word.Breaches = append(word.Breaches, Breach{need, op.Event, p.On, word.Unit})
			}
		}
		if c != nil {
			c.Parts = append(c.Parts, p.copy())
			c.Broken = append(c.Broken, word.Breaches...)
		} else if p.State != Filled && op.Kind != Backward {
			m.Loose = append(m.Loose, word.Breaches...)
		}
		switch {
		case p.State != Consumed || op.Kind == Backward || op.Kind == Clip:
			p.Words = append(p.Words, word)
		case op.Kind == Step: // taken again, without a backward in between
			p.Words = []Word{word}
		}
		if t.apply != nil {
			t.apply(p, op)
		}
		p.Claimed = p.Claimed || op.Claimed
	}
	m.join()
}

// update moves a scale. The word is added to the sentence of every part that
// still waits to be consumed with a term of this scaler in it.
func (m *Machine) update(op *Operation) {
	s := m.scaler(op.Scaler)
	// Another attempt began with a backward, recorded or not.
	if s.updated && s.backwards == 0 && !op.Given && m.backwards > 0 && op.Attempt == s.attempt {
		m.Loose = append(m.Loose, Breach{Requirement: &needBackward, Event: op.Event})
	}
	s.updated, s.backwards, s.attempt = true, 0, op.Attempt
	for _, p := range m.parts {
		if p.State == Filled && p.has(op.Scaler) {
			p.Words = append(p.Words, Word{Op: op, Unit: p.Unit()})
		}
	}
}

// Copy makes the gradients of to those of from, which is within one part: float32
// masters are filled with the gradients of their FP16 parameters.
func (m *Machine) Copy(from, to Set) {
	members := from.Members()
	if len(members) == 0 {
		return
	}
	source := m.PartOf(members[0]).copy()
	for _, p := range m.Parts(to) {
		on := p.On
		*p = source.copy()
		p.On = on
	}
}

// Muddle forgets what the buffers hold: calls are missing from the record.
func (m *Machine) Muddle() {
	for _, p := range m.parts {
		*p = Part{On: p.On, Claimed: true}
	}
	for _, s := range m.scalers {
		s.updated = false
	}
}

func (m *Machine) scaler(id string) *scalerState {
	s := m.scalers[id]
	if s == nil {
		s = &scalerState{}
		m.scalers[id] = s
	}
	return s
}

// join merges parts that have the same history again, so that their number
// stays that of the different histories and not of all splits ever made.
func (m *Machine) join() {
	if len(m.parts) < 2 {
		return
	}
	kept := m.parts[:0]
	clear(m.byEnd)
next:
	for _, p := range m.parts {
		key := p.end()
		for q := m.byEnd[key]; q != nil; q = m.byEnd[key] {
			if p.alike(q) {
				q.On = q.On.Or(p.On)
				continue next
			}
			key++
		}
		m.byEnd[key] = p
		kept = append(kept, p)
	}
	m.parts = kept
}
