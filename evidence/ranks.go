package evidence

import (
	"math"

	"ordercheck/step"
)

// What ranks did together. The stories are those of one run, in the order of ranks.

// Turn is one optimizer's turn at one attempt, on every rank that has it.
type Turn struct {
	On []*step.Consumption // by story; nil where a rank had none
}

// Split lists the stories that applied the step and those that skipped it.
func (t Turn) Split() (applied, skipped []int) {
	for i, c := range t.On {
		switch {
		case c == nil:
		case c.Outcome == step.Applied:
			applied = append(applied, i)
		case c.Outcome == step.Skipped:
			skipped = append(skipped, i)
		}
	}
	return applied, skipped
}

type turnKey struct {
	attempt   int
	optimizer string
	nth       int // an optimizer may have several turns at one attempt
}

// Together lines up the turns of the ranks, in the order of the first one.
func Together(stories []*Story) (out []Turn) {
	turns := map[turnKey]*Turn{}
	var order []turnKey
	for n, s := range stories {
		seen := map[turnKey]int{}
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			if !c.Attempt.Known {
				continue
			}
			key := turnKey{c.Attempt.Value, c.Optimizer, 0}
			key.nth = seen[key]
			seen[turnKey{c.Attempt.Value, c.Optimizer, 0}]++
			if turns[key] == nil {
				turns[key] = &Turn{On: make([]*step.Consumption, len(stories))}
				order = append(order, key)
			}
			turns[key].On[n] = c
		}
	}
	for _, key := range order {
		out = append(out, *turns[key])
	}
	return out
}

// RankScale is a rank's scale at one attempt beside the first rank's.
type RankScale struct {
	Rank, Event  int // index of the story, event in it
	Attempt      step.Maybe[int]
	Scale, First float64
	Same         bool
}

// ScalesByRank compares the scale of each attempt over the ranks.
func ScalesByRank(stories []*Story) (out []RankScale) {
	first := map[int]float64{}
	for _, a := range stories[0].ScaleHistory() {
		if a.Attempt.Known {
			first[a.Attempt.Value] = a.Scale
		}
	}
	for n, s := range stories[1:] {
		for _, a := range s.ScaleHistory() {
			f, ok := first[a.Attempt.Value]
			if !ok || !a.Attempt.Known {
				continue
			}
			out = append(out, RankScale{n + 1, a.Event, a.Attempt, a.Scale, f, f == a.Scale})
		}
	}
	return out
}

// JoinedNorm is a clip's norm beside the norms of the gradients that it was for.
type JoinedNorm struct {
	Story             *Story
	Event             int
	Optimizer         string
	Used, True, Local float64 // what the clip used; over its whole cover; over this rank's gradients
	Sharded           bool    // ranks own different parameters
}

// JoinedNorms measures the norms of clips over all ranks. Where every rank holds
// the same gradients the norm is that of one of them; where ranks own different
// parameters it is joined over all. Anything in between is not told.
func JoinedNorms(stories []*Story) (out []JoinedNorm) {
	clips := make([]map[turnKey]int, len(stories))
	for n, s := range stories {
		clips[n] = map[turnKey]int{}
		for i, e := range s.Events {
			if e.Kind != step.Clip || e.Inferred || !e.Attempt.Known || e.Rule != "global_norm" || e.NormType.Known && e.NormType.Value != 2 {
				continue
			}
			key := turnKey{attempt: e.Attempt.Value, optimizer: place(e)}
			for _, taken := clips[n][key]; taken; _, taken = clips[n][key] {
				key.nth++
			}
			clips[n][key] = i
		}
	}
	keys := map[int]turnKey{}
	for key, i := range clips[0] {
		keys[i] = key
	}
	for _, i := range sortedIndices(keys) {
		out = append(out, joinedNorm(stories, clips, keys[i])...)
	}
	return out
}

func joinedNorm(stories []*Story, clips []map[turnKey]int, key turnKey) (out []JoinedNorm) {
	sums := make([]float64, len(stories))
	disjoint, same := true, true
	seen := map[string]bool{}
	for n, s := range stories {
		i, ok := clips[n][key]
		if !ok {
			return nil
		}
		e := s.Events[i]
		grads, looked := s.Book.Of(e.Before, "grad")
		if !looked || !e.Covers.Known || !e.Norm.Known || !isFinite(e.Norm.Value) {
			return nil
		}
		for _, name := range e.Covers.Value {
			ref, ok := grads[name]
			if !ok {
				continue
			}
			st, ok := s.Book.Stats(ref)
			if !ok || st.NonFinite > 0 {
				return nil
			}
			sums[n] += st.SumSq
			if n > 0 {
				disjoint = disjoint && !seen[name]
			}
			seen[name] = true
		}
		same = same && near(sums[n], sums[0], 1e-6)
		if n > 0 && same && !disjoint {
			same = same && stories[0].sameGrads(clips[0][key], s, i)
		}
	}
	total := 0.0
	for _, v := range sums {
		total += v
	}
	if sums[0] == 0 || !same && !disjoint {
		return nil
	}
	for n, s := range stories {
		i := clips[n][key]
		j := JoinedNorm{Story: s, Event: i, Optimizer: s.OwnerOf(s.Universe.set(s.Events[i].Covers.Value)), Used: s.Events[i].Norm.Value, Local: math.Sqrt(sums[n]), Sharded: disjoint}
		if j.True = j.Local; disjoint {
			j.True = math.Sqrt(total)
		}
		out = append(out, j)
	}
	return out
}

// sameGrads reports whether two ranks' clips were handed the same gradients.
func (s *Story) sameGrads(i int, other *Story, j int) bool {
	a, _ := s.Book.Of(s.Events[i].Before, "grad")
	b, _ := other.Book.Of(other.Events[j].Before, "grad")
	for _, name := range s.Events[i].Covers.Value {
		ra, ok1 := a[name]
		rb, ok2 := b[name]
		if ok1 != ok2 {
			return false
		}
		if c, ok := s.Book.Change(ra, rb); ok1 && (!ok || !c.Same()) {
			return false
		}
	}
	return true
}

// JoinedBetween reports whether a verdict was joined over the ranks between two events.
func (s *Story) JoinedBetween(from, to int) bool {
	for _, e := range s.Events[from+1 : to] {
		if e.Kind == step.Reduce && e.What == "value" || e.Kind == step.Check {
			return true
		}
	}
	return false
}

// Sharded reports whether ranks own different parameters.
func (s *Story) Sharded() bool { return s.Shards }

// Combined says, for a step on one rank of several, whether some micro-batch's
// gradients were never combined over the ranks, or summed twice. known is false
// where no reduction of the run tells.
func (s *Story) Combined(c *step.Consumption) (never, twice, known bool) {
	if !s.look().reduces {
		return false, false, false
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.State != step.Filled || len(p.Terms) == 0 {
			continue
		}
		known = true
		waiting, summed := 0, false
		for event := p.Terms[0].Event; event < c.Event; event++ {
			e := s.Events[event]
			switch {
			case e.Kind == step.Backward:
				waiting++
			case e.Kind == step.Reduce && e.What == "gradient":
				if on := s.Universe.set(e.Covers.Value); e.Covers.Known && on.And(p.On).Empty() {
					continue
				}
				twice = twice || summed && waiting > 0 && e.Mode == "sum"
				summed, waiting = true, 0
			}
		}
		never = never || waiting > 0
	}
	return never, twice, known
}

// SummedOverRanks are reductions that summed gradients which then were stepped
// as they were, or only divided by the loss scale; looked is true where the
// numbers after the reduction and before the step tell.
func (s *Story) SummedOverRanks() (sums []int, looked bool) {
	scales := map[step.Maybe[int]]float64{}
	for _, a := range s.ScaleHistory() {
		scales[a.Attempt] = a.Scale
	}
	for i, e := range s.Events {
		if e.Kind != step.Reduce || e.What != "gradient" || e.Mode != "sum" {
			continue
		}
		summed, _ := s.Book.Of(e.After, "grad")
		for j := i + 1; j < len(s.Events) && s.Events[j].Attempt == e.Attempt; j++ {
			if s.Events[j].Kind != step.Step {
				continue
			}
			taken, _ := s.Book.Of(s.Events[j].Before, "grad")
			for _, name := range e.Covers.Value {
				c, ok := s.Book.Change(summed[name], taken[name])
				f, ok2 := c.Factor()
				if !ok || !ok2 {
					continue
				}
				looked = true
				if near(f, 1, 1e-3) || near(f*scales[e.Attempt], 1, 1e-3) {
					sums = append(sums, i)
				}
			}
			break
		}
	}
	return sums, looked
}
