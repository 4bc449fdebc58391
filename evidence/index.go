package evidence

import (
	"fmt"

	"ordercheck/step"
)

// index finds events by attempt, and keeps what is asked for again and again,
// so that a rule costs no more than a walk over the story.
type index struct {
	events         map[step.Maybe[int]][]int
	turns          map[step.Maybe[int]][]*step.Consumption
	skips          []Skip
	contradictions []Contradiction
	guarded        map[string]bool
	byHand         map[string]map[int]bool // attempts, by optimizer
	handed         map[string]bool         // lines whose clip was handed a tensor
	reduces        bool                    // gradients are combined over ranks by calls
	relies         bool                    // the scaler unscales or steps
}

func (s *Story) look() *index {
	if s.index != nil {
		return s.index
	}
	x := &index{
		events: map[step.Maybe[int]][]int{}, turns: map[step.Maybe[int]][]*step.Consumption{},
		guarded: map[string]bool{}, byHand: map[string]map[int]bool{}, handed: map[string]bool{},
	}
	s.index = x
	for i, e := range s.Events {
		x.events[e.Attempt] = append(x.events[e.Attempt], i)
		switch {
		case e.Kind == step.Clip && len(e.Covers.Value) > 0:
			x.handed[place(e)] = true
		case e.Kind == step.Reduce && e.What == "gradient":
			x.reduces = true
		case !e.Inferred && (e.Kind == step.Unscale || e.Kind == step.Step && e.Via == "scaler"):
			x.relies = true
		}
	}
	for i := range s.Machine.Consumptions {
		c := &s.Machine.Consumptions[i]
		x.turns[c.Attempt] = append(x.turns[c.Attempt], c)
	}
	x.skips = s.findSkips()
	x.contradictions = s.findContradictions()
	return x
}

// at lists the events of an attempt.
func (s *Story) at(attempt step.Maybe[int]) []int { return s.look().events[attempt] }

// turns lists the steps of an attempt.
func (s *Story) turns(attempt step.Maybe[int]) []*step.Consumption { return s.look().turns[attempt] }

// Skips lists the skipped steps of every optimizer, in order, with the state on
// both sides compared.
func (s *Story) Skips() []Skip { return s.look().skips }

// Contradictions compares what calls claim with what the snapshots hold. Only
// differences that no rounding explains count.
func (s *Story) Contradictions() []Contradiction { return s.look().contradictions }

// ReliesOnCalls reports whether this script lets its scaler unscale or step:
// then code of its own does not do it behind the calls' back.
func (s *Story) ReliesOnCalls() bool { return s.look().relies && !s.HandScale }

// Guarded reports whether some attempt at which gradients of these parameters
// were not finite went by without a step of them: somebody looks.
func (s *Story) Guarded(optimizer string, on step.Set) bool {
	x, key := s.look(), fmt.Sprint(optimizer, on)
	found, known := x.guarded[key]
	if !known {
		found = s.findGuard(optimizer, on)
		x.guarded[key] = found
	}
	return found
}

// skippedByHand are attempts without a step of an optimizer whose steps the
// script itself guards.
func (s *Story) skippedByHand(optimizer string) map[int]bool {
	x := s.look()
	if _, known := x.byHand[optimizer]; !known {
		x.byHand[optimizer] = s.findHandSkips(optimizer)
	}
	return x.byHand[optimizer]
}
