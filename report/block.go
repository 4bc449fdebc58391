package report

import (
	"cmp"
	"slices"

	"ordercheck/check"
)

// A block is what text shows of one cause: a root finding whole, the ranks on
// which the same was found, and the findings that follow from it.
type block struct {
	root      check.Finding
	same      []check.Finding // like root, on other ranks
	explained []check.Finding
}

// blocks groups the findings of one input: the most severe first, then the most
// certain, else in the order of the report. Every finding is in exactly one block.
func blocks(findings []check.Finding, input int) []*block {
	var fs []check.Finding
	for _, f := range findings {
		if f.Input == input {
			fs = append(fs, f)
		}
	}
	var list []*block
	of := make(map[int]*block) // by the root's index
	for i, f := range fs {
		if rootOf(fs, i) != i {
			continue
		}
		if j := slices.IndexFunc(list, func(b *block) bool { return sameButRank(b.root, f) }); j >= 0 {
			list[j].same = append(list[j].same, f)
			of[i] = list[j]
			continue
		}
		b := &block{root: f}
		list = append(list, b)
		of[i] = b
	}
	for i, f := range fs {
		if r := rootOf(fs, i); r != i {
			of[r].explained = append(of[r].explained, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *block) int {
		return cmp.Or(weight(a.root.Severity)-weight(b.root.Severity), doubt(a.root.Certainty)-doubt(b.root.Certainty))
	})
	return list
}

// worst is the severity of the block's most severe finding.
func (b *block) worst() check.Severity {
	s := b.root.Severity
	for _, f := range b.explained {
		if weight(f.Severity) < weight(s) {
			s = f.Severity
		}
	}
	return s
}

// rootOf follows `because` from finding i as far as there is a finding of the
// rule it names. A circle ends where it began.
func rootOf(fs []check.Finding, i int) int {
	seen := map[int]bool{}
	for !seen[i] {
		seen[i] = true
		j := causeOf(fs, i)
		if j < 0 {
			break
		}
		i = j
	}
	return i
}

// causeOf returns the index of the finding that explains finding i, on the same
// rank and of the same optimizer if there is one, or -1.
func causeOf(fs []check.Finding, i int) int {
	if fs[i].Because == nil {
		return -1
	}
	best, score := -1, -1
	for j, f := range fs {
		if j == i || f.Rule != *fs[i].Because {
			continue
		}
		s := 0
		if equal(f.Rank, fs[i].Rank) {
			s += 2
		}
		if equal(f.Optimizer, fs[i].Optimizer) {
			s++
		}
		if s > score {
			best, score = j, s
		}
	}
	return best
}

// sameButRank tells whether two findings say the same of two ranks; what was
// measured on them may differ.
func sameButRank(a, b check.Finding) bool {
	return a.Rank != nil && b.Rank != nil && *a.Rank != *b.Rank &&
		a.Rule == b.Rule && a.Severity == b.Severity && a.Certainty == b.Certainty &&
		equal(a.Optimizer, b.Optimizer) && slices.Equal(a.Steps, b.Steps) && equal(a.Where.Source, b.Where.Source)
}

// equal compares what two pointers point at; nil equals nil.
func equal[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// weight orders severities, the worst first.
func weight(s check.Severity) int {
	return slices.Index([]check.Severity{check.Error, check.Warning, check.Advice}, s)
}

// doubt orders certainties, the surest first.
func doubt(c check.Certainty) int {
	return slices.Index([]check.Certainty{check.Proven, check.Observed, check.Suspected}, c)
}
