package report

import (
	"slices"
	"strings"

	"ordercheck/check"
)

// statuses says what was decided and what was not, and for want of what.
func (p *page) statuses(r *check.Report) {
	if len(r.Rules) == 0 {
		return
	}
	n := map[check.Status]int{}
	for _, s := range r.Rules {
		n[s.Status]++
	}
	p.line("")
	p.line("decided: " + decided(n[check.Fault], n[check.Pass]))
	p.reasons("not decided", "needs ", r.Rules, check.NoData, func(s check.RuleStatus) string { return s.Needs })
	p.reasons("not applicable", "", r.Rules, check.NotApplicable, func(s check.RuleStatus) string { return s.Why })
	if n[check.Off] > 0 {
		p.line("off: " + counted(n[check.Off], "rule"))
	}
}

func decided(fault, pass int) string {
	var words []string
	if pass > 0 {
		words = append(words, counted(pass, "rule")+" passed")
	}
	if fault > 0 {
		words = append(words, counted(fault, "rule")+" found something")
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// reasons lists the rules of a status, those with the same reason together.
func (p *page) reasons(name, before string, rules []check.RuleStatus, status check.Status, reason func(check.RuleStatus) string) {
	var order []string
	ids := map[string][]string{}
	for _, s := range rules {
		if s.Status != status {
			continue
		}
		why := reason(s)
		if ids[why] == nil {
			order = append(order, why)
		}
		ids[why] = append(ids[why], s.ID)
	}
	if len(order) == 0 {
		return
	}
	p.line(name + ":")
	for _, why := range order {
		text := strings.Join(ids[why], ", ")
		if why != "" {
			text += ": " + before + why
		}
		p.buf.WriteString(hang("  ", text, 6, p.opt.Width))
	}
}

// maxNotes is how many notes of an input are shown.
const maxNotes = 20

// notes prints what is worth knowing and no finding.
func (p *page) notes(r *check.Report) {
	if len(r.Notes) == 0 {
		return
	}
	p.line("")
	p.line("notes:")
	for i, in := range r.Inputs {
		shown := 0
		for _, n := range r.Notes {
			if n.Input != i {
				continue
			}
			if shown++; shown > maxNotes {
				continue
			}
			where := n.Where
			if len(r.Inputs) > 1 {
				where = strings.TrimSuffix(pathOf(in)+": "+where, ": ")
			}
			if where != "" {
				where += ": "
			}
			p.buf.WriteString(hang("  ", where+n.Text, 6, p.opt.Width))
		}
		if shown > maxNotes {
			p.printf("  and %d more about %s\n", shown-maxNotes, pathOf(in))
		}
	}
}

// rulesOf lists the rules of the findings, in order of id.
func rulesOf(fs []check.Finding) []string {
	var ids []string
	for _, f := range fs {
		ids = append(ids, f.Rule)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
