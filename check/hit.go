package check

import (
	"cmp"
	"slices"
	"strconv"

	"ordercheck/evidence"
	"ordercheck/step"
)

// hit is one place at which a rule is broken. Hits of one rank and optimizer
// become one finding; the surest of them, and of these the first, is told whole.
type hit struct {
	story     *evidence.Story
	event     int // of the story
	attempt   step.Maybe[int]
	optimizer string
	certainty Certainty
	idle      bool // the calls are wrong, and here they changed nothing
	grave     bool // of a rule that warns: this makes it an error
	// tell says what happened, with the numbers; called for the hit that is told.
	tell func() (message string, evidence []Evidence)
}

// told makes findings of hits.
func told(hits []hit) []Finding {
	type key struct {
		rank      int
		optimizer string
	}
	groups := map[key][]hit{}
	var order []key
	for _, h := range hits {
		k := key{h.story.Rank, h.optimizer}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], h)
	}
	var out []Finding
	for _, k := range order {
		out = append(out, oneFinding(k.rank, k.optimizer, groups[k]))
	}
	return out
}

func oneFinding(rank int, optimizer string, hits []hit) Finding {
	f := Finding{Rank: &rank, Steps: [][2]int{}, began: -1}
	for _, h := range hits {
		if h.attempt.Known && (f.began < 0 || h.attempt.Value < f.began) {
			f.began = h.attempt.Value
		}
	}
	hits = withEffect(hits)
	best := slices.MinFunc(hits, func(a, b hit) int { return certaintyOrder(a.certainty) - certaintyOrder(b.certainty) })
	f.Certainty = best.certainty
	if optimizer != "" {
		f.Optimizer = &optimizer
	}
	var steps []int
	for _, h := range hits {
		if h.attempt.Known {
			steps = append(steps, h.attempt.Value)
		}
	}
	f.Steps, f.Count = ranges(steps)
	switch {
	case best.story.Windows:
		f.Steps = [][2]int{}
	case len(steps) > 0:
		f.Step = &f.Steps[0][0]
	default:
		f.Count = 1
	}
	f.grave = slices.ContainsFunc(hits, func(h hit) bool { return h.grave })
	f.Message, f.Evidence = best.tell()
	if f.Evidence == nil {
		f.Evidence = []Evidence{}
	}
	f.Where = where(best.story, best.event)
	return f
}

// withEffect leaves out the hits that changed nothing, if others did.
func withEffect(hits []hit) []hit {
	var out []hit
	for _, h := range hits {
		if !h.idle {
			out = append(out, h)
		}
	}
	if len(out) > 0 {
		return out
	}
	return hits
}

// ranges turns step numbers into closed ranges and counts them.
func ranges(steps []int) (out [][2]int, count int) {
	out = [][2]int{}
	steps = slices.Clone(steps)
	slices.Sort(steps)
	for _, s := range slices.Compact(steps) {
		count++
		if n := len(out); n > 0 && out[n-1][1] == s-1 {
			out[n-1][1] = s
			continue
		}
		out = append(out, [2]int{s, s})
	}
	return out, count
}

// where points at the call, in the recording and in the script. For a change
// that no call made it is the call before it.
func where(s *evidence.Story, event int) Where {
	e := s.Events[event]
	var w Where
	if e.Recorded.File != "" {
		w.Recording = &Position{e.Recorded.File, e.Recorded.Line}
	}
	if e.Line > 0 {
		file := e.File
		if file == "" {
			file = cmp.Or(s.Script, "script")
		}
		w.Source = &Position{file, e.Line}
	}
	return w
}

// atLine names the script's line of an event, for messages.
func atLine(s *evidence.Story, event int) string {
	e := s.Events[event]
	if e.Line == 0 {
		return ""
	}
	return " (line " + strconv.Itoa(e.Line) + ")"
}
