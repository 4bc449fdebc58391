package check

import "slices"

// findRoots sets Because: a finding follows from another one of the same run if
// the other's rule explains its rule, directly or through rules between them,
// they are of the same rank and optimizer as far as both say, and the other
// began no later.
func findRoots(findings []Finding) {
	for i := range findings {
		f := &findings[i]
		for j := range findings {
			g := &findings[j]
			if i == j || !explains(g.Rule, f.Rule) && !poisons(g.Rule, f.Rule) || !together(f, g) || g.began > f.began ||
				severityOrder(g.Severity) > severityOrder(f.Severity) {
				continue
			}
			if f.Because == nil || explains(g.Rule, *f.Because) || poisons(g.Rule, *f.Because) { // the deeper cause
				rule := g.Rule // findings are sorted later
				f.Because = &rule
			}
		}
	}
}

// poisons reports whether a fault makes the parameters NaN, after which no loss
// is finite and the scale falls without end: what follows is never a fault of its own.
func poisons(cause, effect string) bool {
	return (effect == "OC2009" || effect == "OC3005") && (cause == "OC2002" || cause == "OC2006" || explains(cause, "OC2002"))
}

// together reports whether two findings may have one cause: ranks and
// optimizers agree where both name one.
func together(f, g *Finding) bool {
	return (f.Optimizer == nil || g.Optimizer == nil || *f.Optimizer == *g.Optimizer) &&
		(f.Rank == nil || g.Rank == nil || *f.Rank == *g.Rank)
}

// explains follows Explains from rule to rule.
func explains(cause, effect string) bool {
	return explainedBy(cause, effect, map[string]bool{})
}

func explainedBy(cause, effect string, seen map[string]bool) bool {
	if seen[cause] {
		return false
	}
	seen[cause] = true
	r := ruleByID(cause)
	if r == nil {
		return false
	}
	if slices.Contains(r.Explains, effect) {
		return true
	}
	return slices.ContainsFunc(r.Explains, func(next string) bool { return explainedBy(next, effect, seen) })
}

func ruleByID(id string) *Rule {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &Rules[i]
}
