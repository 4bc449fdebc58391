package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ordercheck/check"
)

// headline is the first line of the text: it tells the verdict.
//
//	run1: 1 fault and 2 warnings in 24 steps (recording, 170 events)
//	run1: nothing wrong was found in 24 steps (recording, 170 events); not decided: OC2003
//	run1: nothing could be decided in 0 steps (recording, 3 events): no loss is scaled
func (p *page) headline(r *check.Report, all []*block) string {
	subject, about := subjectOf(r)
	found := p.tally(all)
	if r.Steps > 0 {
		about = " in " + counted(r.Steps, "step") + about
	}
	switch r.Verdict {
	case check.VerdictFault:
		return subject + found + about + faultyRuns(r)
	case check.VerdictClean:
		s := subject + "nothing wrong was found" + about
		if found != "" {
			s += "; " + found
		}
		if ids := lacking(r); len(ids) > 0 {
			s += "; not decided: " + firstOf(ids, 4)
		}
		return s
	default:
		s := subject + "nothing could be decided" + about + ": " + whyUndecided(r)
		if found != "" {
			s += "; " + found
		}
		return s
	}
}

// subjectOf says what was checked, to stand before the verdict and after it.
func subjectOf(r *check.Report) (before, after string) {
	switch len(r.Inputs) {
	case 0:
		return "", ""
	case 1:
		return pathOf(r.Inputs[0]) + ": ", kindOf(r.Inputs[0])
	}
	return counted(len(r.Inputs), "run") + ": ", ""
}

// faultyRuns names those of several runs that have a fault.
func faultyRuns(r *check.Report) string {
	if len(r.Inputs) < 2 {
		return ""
	}
	faulty := map[int]bool{}
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			faulty[f.Input] = true
		}
	}
	var names []string
	for i, in := range r.Inputs {
		if faulty[i] {
			names = append(names, pathOf(in))
		}
	}
	if len(names) == len(r.Inputs) {
		return "; at fault: all"
	}
	return "; at fault: " + firstOf(names, 4)
}

// inputLine heads the findings of one of several inputs.
func (p *page) inputLine(in check.Input, bs []*block) string {
	found := p.tally(bs)
	if found == "" {
		found = "no finding"
	}
	return p.bold(pathOf(in)) + ": " + found + kindOf(in)
}

func pathOf(in check.Input) string {
	if in.Path == "-" {
		return "standard input"
	}
	return name(in.Path)
}

func kindOf(in check.Input) string {
	switch {
	case in.Kind == "":
		return ""
	case in.Events == 0:
		return " (" + in.Kind + ")"
	case in.Kind == "events": // a file of them, without a recording around it
		return " (" + counted(in.Events, "event") + ")"
	}
	return " (" + in.Kind + ", " + counted(in.Events, "event") + ")"
}

// tally counts causes by the severity of the worst that follows from each:
// "1 fault, 2 warnings and 1 note"; "" for none.
func (p *page) tally(bs []*block) string {
	n := map[check.Severity]int{}
	for _, b := range bs {
		n[b.worst()]++
	}
	var words []string
	for _, s := range []check.Severity{check.Error, check.Warning, check.Advice} {
		if n[s] > 0 {
			name := string(s)
			if s == check.Error {
				name = "fault"
			}
			words = append(words, p.severity(s, counted(n[s], name)))
		}
	}
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
	return strings.Join(words, "")
}

// lacking lists the rules of severity error that lacked data, or if there are none, all that did.
func lacking(r *check.Report) []string {
	var errors, all []string
	for _, s := range r.Rules {
		if s.Status != check.NoData {
			continue
		}
		all = append(all, s.ID)
		if s.Severity == check.Error {
			errors = append(errors, s.ID)
		}
	}
	if len(errors) > 0 {
		return errors
	}
	return all
}

// whyUndecided gives the commonest reason why rules of severity error were not
// decided, or where all of these are off, why others were not.
func whyUndecided(r *check.Report) string {
	wanted := func(s check.RuleStatus) bool { return s.Severity == check.Error && s.Status != check.Off }
	if !slices.ContainsFunc(r.Rules, wanted) {
		wanted = func(check.RuleStatus) bool { return true }
	}
	needs, whys := map[string]int{}, map[string]int{}
	for _, s := range r.Rules {
		if !wanted(s) {
			continue
		}
		switch s.Status {
		case check.NoData:
			needs[clean(s.Needs)]++
		case check.NotApplicable:
			whys[clean(s.Why)]++
		}
	}
	switch {
	case len(needs) > 0:
		return "needs " + commonest(needs)
	case len(whys) > 0:
		return "no rule applies (" + commonest(whys) + ")"
	case len(r.Inputs) == 0:
		return "nothing was read"
	}
	return "all rules are off"
}

// commonest names the reason that was counted most, and how many others there are.
func commonest(count map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	if len(keys) == 1 {
		return keys[0]
	}
	return fmt.Sprintf("%s; and %d more", keys[0], len(keys)-1)
}
