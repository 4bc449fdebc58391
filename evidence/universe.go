package evidence

import (
	"sort"
	"strconv"

	"ordercheck/record"
	"ordercheck/step"
)

// Universe numbers the parameters of one rank and says who owns them.
type Universe struct {
	Names  []string
	index  map[string]int
	owned  map[string]step.Set // by optimizer
	known  map[string]bool     // the recording or its snapshots say what the optimizer owns
	master map[int]int         // FP16 parameter → its float32 copy
	copies step.Set            // parameters that are such a copy
}

// anonymous stands for all parameters of an optimizer where no record names any.
const anonymous = "(all parameters)"

// newUniverse gathers the names: from the manifest, else from snapshots and covers.
func newUniverse(run *record.Run, rank record.Rank, book *Book) *Universe {
	u := &Universe{index: map[string]int{}, owned: map[string]step.Set{}, known: map[string]bool{}, master: map[int]int{}}
	m := run.Manifest
	for _, name := range sortedKeys(m.Parameters) {
		u.add(name)
	}
	for _, name := range sortedKeys(m.Parameters) {
		if master := m.Parameters[name].Master; master != nil && *master != name {
			to := u.add(*master)
			u.master[u.index[name]] = to
			u.copies = u.copies.Or(step.SetOf(to))
		}
	}
	for _, id := range sortedKeys(m.Optimizers) {
		o := m.Optimizers[id]
		params := o.Params
		if o.ParamsByRank != nil {
			params = o.ParamsByRank[strconv.Itoa(rank.ID)]
		}
		if o.Params == nil && o.ParamsByRank == nil {
			continue
		}
		u.known[id] = true
		u.owned[id] = u.set(params)
	}
	optimizers := map[string]bool{}
	for i := range rank.Events {
		e := &rank.Events[i]
		if e.Optimizer != "" {
			optimizers[e.Optimizer] = true
		}
		u.set(e.Covers.Value)
		for _, s := range []step.Snapshot{e.Before, e.After} {
			grads, _ := book.Of(s, "grad")
			for _, name := range sortedKeys(grads) {
				u.add(name)
			}
		}
	}
	u.ownFromStates(rank, book)
	if len(u.Names) == 0 {
		for _, id := range sortedKeys(optimizers) {
			u.owned[id] = step.SetOf(u.add(anonymous + " " + id))
		}
		if len(optimizers) == 0 {
			u.add(anonymous)
		}
	}
	if len(optimizers) == 1 {
		for id := range optimizers {
			if !u.known[id] {
				u.owned[id] = u.All()
			}
		}
	}
	return u
}

// ownFromStates gives an optimizer that the manifest does not describe the
// parameters whose state stands beside its steps.
func (u *Universe) ownFromStates(rank record.Rank, book *Book) {
	for i := range rank.Events {
		e := &rank.Events[i]
		if e.Kind != step.Step || e.Optimizer == "" || u.known[e.Optimizer] {
			continue
		}
		for _, s := range []step.Snapshot{e.Before, e.After} {
			for _, kind := range []string{"exp_avg", "momentum_buffer", "param"} {
				if c, ok := book.Of(s, kind); ok {
					u.owned[e.Optimizer] = u.owned[e.Optimizer].Or(u.set(sortedKeys(c)))
				}
			}
		}
		if !u.owned[e.Optimizer].Empty() {
			u.known[e.Optimizer] = true
		}
	}
}

func (u *Universe) add(name string) int {
	if i, ok := u.index[name]; ok {
		return i
	}
	i := len(u.Names)
	u.Names = append(u.Names, name)
	u.index[name] = i
	return i
}

func (u *Universe) set(names []string) step.Set {
	indices := make([]int, 0, len(names))
	for _, n := range names {
		indices = append(indices, u.add(n))
	}
	return step.SetOf(indices...)
}

// All is every parameter.
func (u *Universe) All() step.Set {
	indices := make([]int, len(u.Names))
	for i := range indices {
		indices[i] = i
	}
	return step.SetOf(indices...)
}

// Owned returns the parameters of an optimizer. known is false where it is an
// assumption: no record says, and there are several optimizers.
func (u *Universe) Owned(optimizer string) (on step.Set, known bool) {
	if on, ok := u.owned[optimizer]; ok {
		return on, true
	}
	return u.All(), false
}

// Members names the parameters of a set.
func (u *Universe) Members(s step.Set) []string {
	var out []string
	for _, i := range s.Members() {
		out = append(out, u.Names[i])
	}
	return out
}

// sources are the FP16 parameters whose float32 copies are in a set.
func (u *Universe) sources(on step.Set) step.Set {
	var out step.Set
	for from, to := range u.master {
		if on.Has(to) {
			out = out.Or(step.SetOf(from))
		}
	}
	return out
}

// filledByBackward is what a backward fills where nobody looked: every
// parameter that is no copy of another.
func (u *Universe) filledByBackward() step.Set { return u.All().Minus(u.copies) }

// sole reports whether at most one optimizer owns parameters here.
func (u *Universe) sole() bool { return len(u.owned) <= 1 }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
