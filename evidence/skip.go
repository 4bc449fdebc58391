package evidence

import (
	"strings"

	"ordercheck/step"
)

// Skip is one step that was skipped: the optimizer was not called, a fused one
// was handed found_inf, or the script itself went past the step because its
// gradients were not finite.
type Skip struct {
	Event     int
	Attempt   step.Maybe[int]
	Optimizer string

	Looked  bool     // the optimizer's state was looked at before and after
	Tensors int      // of state
	Moved   []string // tensors of state that are others afterwards
	Kinds   []Kind   // what happened to each kind that moved
}

// Kind is a kind of optimizer state and the number that it was multiplied by;
// 0 if it was no multiplication.
type Kind struct {
	Name   string
	Factor float64
}

func (s *Story) findSkips() (out []Skip) {
	outcome := map[int]step.Outcome{}
	for _, c := range s.Machine.Consumptions {
		outcome[c.Event] = c.Outcome
	}
	last := map[string]Content{}    // state after the last step, by optimizer
	overflow := map[string][]int{}  // overflowing backwards since the last step, by optimizer
	sinceLoad := map[string]bool{}  // nothing was loaded since
	optimizers := map[string]bool{} // seen so far
	seq := -1
	for i := range s.Events {
		e := s.Events[i]
		if e.Seq > seq+1 { // calls are missing: a step may be among them
			clear(last)
			clear(overflow)
		}
		seq = max(seq, e.Seq)
		switch e.Kind {
		case step.Load:
			clear(last)
		case step.Backward:
			for id := range optimizers {
				on, _ := s.Universe.Owned(id)
				if grads, ok := s.Book.Of(e.After, "grad"); ok && s.count(grads, on, i).NonFinite {
					overflow[id] = append(overflow[id], i)
				}
			}
		case step.Step:
			id := e.Optimizer
			optimizers[id] = true
			before, after := s.owned(e, e.Before), s.owned(e, e.After)
			if skipped := overflow[id]; !s.Windows && !s.Gaps && e.Via == "optimizer" && len(skipped) > 0 && s.Events[skipped[0]].Attempt != e.Attempt && sinceLoad[id] {
				if old, ok := last[id]; ok && len(before) > 0 {
					out = append(out, s.compareState(skipped[0], id, old, before))
				}
			}
			overflow[id], sinceLoad[id] = nil, true
			if len(before) == 0 {
				before = last[id]
			}
			if outcome[i] == step.Skipped {
				k := Skip{Event: i, Attempt: e.Attempt, Optimizer: id}
				if before != nil && after != nil {
					k = s.compareState(i, id, before, after)
				}
				out = append(out, k)
			}
			delete(last, id)
			if after != nil {
				last[id] = after
			}
		}
	}
	return out
}

// owned is the state of a step's parameters in a snapshot; nil if nobody looked
// at state. An optimizer that has none yet has parameters there.
func (s *Story) owned(e *step.Event, snap step.Snapshot) Content {
	on, _ := s.Universe.Owned(e.Optimizer)
	if e.Covers.Known {
		on = s.Universe.set(e.Covers.Value)
	}
	out := Content{}
	for key, ref := range s.Book.State(snap) {
		if _, param, _ := strings.Cut(key, "/"); on.Has(s.Universe.add(param)) {
			out[key] = ref
		}
	}
	if _, looked := s.Book.Of(snap, "param"); len(out) == 0 && !looked {
		return nil
	}
	return out
}

func (s *Story) compareState(event int, optimizer string, before, after Content) Skip {
	k := Skip{Event: event, Attempt: s.Events[event].Attempt, Optimizer: optimizer, Looked: true, Tensors: len(after)}
	moves := map[string]Move{}
	for n, key := range sortedKeys(after) {
		old, had := before[key]
		kind, _, _ := strings.Cut(key, "/")
		if !had {
			if st, ok := s.Book.Stats(after[key]); ok && !st.Zero() {
				k.Moved = append(k.Moved, key)
			}
			continue
		}
		c, ok := s.Book.Change(old, after[key])
		if !ok || c.Same() {
			continue
		}
		k.Moved = append(k.Moved, key)
		if moves[kind] == nil {
			moves[kind] = Move{}
		}
		moves[kind][n] = c
	}
	for _, kind := range sortedKeys(moves) {
		f, _ := moves[kind].Factor()
		k.Kinds = append(k.Kinds, Kind{kind, f})
	}
	return k
}
