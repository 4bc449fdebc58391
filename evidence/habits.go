package evidence

import (
	"fmt"
	"strings"

	"ordercheck/step"
)

// habits remember what was seen to happen between two lines of a script, so
// that attempts at which nobody looked are not judged by calls alone.
type habits struct {
	seen    map[site][][]act
	settled map[site]habit // nil while learning
	hooks   map[string]hookHabit
}

// hookHabit counts the backwards of a line that were looked at, and those after
// which the gradients bore the mark of a clip.
type hookHabit struct{ looked, marked int }

func (h *habits) sawHook(line string, marked bool) {
	if h.settled != nil {
		return
	}
	k := h.hooks[line]
	k.looked++
	if marked {
		k.marked++
	}
	h.hooks[line] = k
}

// hooked reports whether every backward of a line that was looked at bore the mark.
func (h *habits) hooked(line string) bool {
	k := h.hooks[line]
	return h.settled != nil && k.looked >= 2 && k.marked == k.looked
}

// site is a place in the script: between two calls.
type site struct{ prev, next string }

func siteOf(prev, next *step.Event) site { return site{place(prev), place(next)} }

func place(e *step.Event) string {
	return fmt.Sprintf("%s %s:%d %s", e.Kind, e.File, e.Line, e.Optimizer)
}

type regularity uint8

const (
	never  regularity = iota // nobody looked
	always                   // the same each time
	varies
)

type habit struct {
	acts []act
	how  regularity
}

func newHabits() *habits { return &habits{seen: map[site][][]act{}, hooks: map[string]hookHabit{}} }

func (h *habits) saw(s site, acts []act) {
	if h.settled == nil {
		h.seen[s] = append(h.seen[s], acts)
	}
}

// settle ends the learning: what was seen alike each time becomes a habit. A
// clip that was active at some attempts only is no difference, and no habit.
func (h *habits) settle() {
	h.settled = map[site]habit{}
	for s, all := range h.seen {
		switch first := all[0]; {
		case alike(all, describe):
			h.settled[s] = habit{acts: first, how: always}
		case alike(all, func(acts []act) string { return describe(withoutClips(acts)) }):
			h.settled[s] = habit{acts: withoutClips(first), how: always}
		default:
			h.settled[s] = habit{how: varies}
		}
	}
}

func alike(all [][]act, describe func([]act) string) bool {
	for _, acts := range all[1:] {
		if describe(acts) != describe(all[0]) {
			return false
		}
	}
	return true
}

// at returns what happens at a place. Where nobody looked just there but a
// change was seen on one side of it, it is not known what happened.
func (h *habits) at(s site) ([]act, regularity) {
	if h.settled == nil {
		return nil, always // while learning, only what is seen counts
	}
	if found, ok := h.settled[s]; ok {
		return found.acts, found.how
	}
	for other, found := range h.settled {
		if (other.prev == s.prev || other.next == s.next) && (found.how == varies || len(found.acts) > 0) {
			return nil, varies
		}
	}
	return nil, never
}

func withoutClips(acts []act) (out []act) {
	for _, a := range acts {
		if a.kind != shrunk {
			out = append(out, a)
		}
	}
	return out
}

func describe(acts []act) string {
	var b strings.Builder
	for _, a := range acts {
		b.WriteString(a.String())
	}
	return b.String()
}
