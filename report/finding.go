package report

import (
	"fmt"
	"strings"

	"ordercheck/check"
)

// block prints one cause. Of the input's other blocks it wants to know whether
// there are several ranks or optimizers to tell apart; total is the number of
// steps of the input, 0 if that is not known.
func (p *page) block(b *block, all []*block, total int) {
	f := b.root
	p.line("")
	p.heading(f)
	p.place(b, all, total)
	for _, paragraph := range strings.Split(f.Message, "\n\n") {
		for _, l := range wrap(paragraph, p.opt.Width-2) {
			p.line("  " + l)
		}
	}
	p.evidence(f.Evidence)
	p.otherRanks(b)
	for _, rule := range rulesOf(b.explained) {
		p.explains(rule, b.explained, total)
	}
	p.mend(f.Rule)
}

// mend prints the first sentence of the first remedy, and where there is more.
func (p *page) mend(rule string) {
	for _, r := range p.opt.Rules {
		if r.ID == rule && len(r.Mend) > 0 {
			m := r.Mend[0]
			p.buf.WriteString(hang("  mend ("+m.Framework+"): ", firstSentence(m.Text), 8, p.opt.Width))
		}
	}
	p.line("  more: ordercheck explain " + p.bold(rule))
}

// firstSentence cuts text behind the first full stop that ends a sentence.
func firstSentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if i := strings.Index(text, ". "); i >= 0 {
		return text[:i+1]
	}
	return text
}

// heading is `ERROR OC1001  title          proven`.
func (p *page) heading(f check.Finding) {
	label := strings.ToUpper(string(f.Severity))
	title := p.opt.title(f.Rule)
	used := columns(label + " " + f.Rule + "  " + title)
	gap := max(2, p.opt.Width-used-columns(string(f.Certainty)))
	p.line(p.severity(f.Severity, label) + " " + p.bold(f.Rule) + "  " + title + strings.Repeat(" ", gap) + string(f.Certainty))
}

// place says where, when and for whom: script, steps, recording, rank, optimizer.
func (p *page) place(b *block, all []*block, total int) {
	f := b.root
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(position(f.Where.Source))
	add(stepList(f.Steps, f.Count, total))
	add(position(f.Where.Recording))
	who := distinct(all)
	if f.Rank != nil && (*f.Rank != 0 || who.ranks > 1) {
		add(fmt.Sprintf("rank %d", *f.Rank))
	}
	if f.Optimizer != nil && (*f.Optimizer != "0" || who.optimizers > 1) {
		add("optimizer " + name(*f.Optimizer))
	}

	var line string
	for _, part := range parts {
		switch {
		case line == "":
			line = "  " + part
		case columns(line)+3+columns(part) <= p.opt.Width:
			line += "   " + part
		default:
			p.line(line)
			line = "  " + part
		}
	}
	if line != "" {
		p.line(line)
	}
}

func position(at *check.Position) string {
	switch {
	case at == nil:
		return ""
	case at.Line == 0:
		return name(at.File)
	}
	return fmt.Sprintf("%s:%d", name(at.File), at.Line)
}

type parties struct{ ranks, optimizers int }

// distinct counts the ranks and optimizers that findings speak of.
func distinct(all []*block) parties {
	ranks, optimizers := map[int]bool{}, map[string]bool{}
	note := func(f check.Finding) {
		if f.Rank != nil {
			ranks[*f.Rank] = true
		}
		if f.Optimizer != nil {
			optimizers[*f.Optimizer] = true
		}
	}
	for _, b := range all {
		note(b.root)
		for _, f := range b.same {
			note(f)
		}
		for _, f := range b.explained {
			note(f)
		}
	}
	return parties{len(ranks), len(optimizers)}
}

// maxLabel is how wide the left column of the evidence may become.
const maxLabel = 64

// evidence prints a table of what was measured.
func (p *page) evidence(es []check.Evidence) {
	width := 0
	for _, e := range es {
		if n := columns(clean(e.What)); n <= maxLabel {
			width = max(width, n)
		}
	}
	for _, e := range es {
		label := clean(e.What)
		label += strings.Repeat(" ", max(0, width-columns(label)))
		p.buf.WriteString(hang("    "+label+"  ", show(e.Value), width+6, p.opt.Width))
	}
}

// otherRanks says on which ranks the same was found.
func (p *page) otherRanks(b *block) {
	if len(b.same) == 0 {
		return
	}
	var ranks [][2]int
	alike := true
	for _, f := range b.same {
		ranks = append(ranks, [2]int{*f.Rank, *f.Rank})
		alike = alike && f.Message == b.root.Message
		for i, e := range f.Evidence {
			alike = alike && i < len(b.root.Evidence) && e.What == b.root.Evidence[i].What &&
				show(e.Value) == show(b.root.Evidence[i].Value)
		}
	}
	ranks, n := unite(ranks)
	words := make([]string, len(ranks))
	for i, r := range ranks {
		words[i] = span(r)
	}
	s := "the same on rank"
	if n > 1 {
		s += "s"
	}
	s += " " + strings.Join(words, ", ")
	if !alike {
		s += ", with other numbers"
	}
	p.line("  " + s)
}

// explains prints one line for all findings of a rule that follow from a cause.
func (p *page) explains(rule string, explained []check.Finding, total int) {
	var ranges [][2]int
	for _, f := range explained {
		if f.Rule == rule {
			ranges = append(ranges, f.Steps...)
		}
	}
	s := "  explains " + p.bold(rule)
	if title := p.opt.title(rule); title != "" {
		s += " " + title
	}
	if ranges, count := unite(ranges); count == 1 {
		s += fmt.Sprintf(" (step %d)", ranges[0][0])
	} else if count > 1 {
		s += fmt.Sprintf(" (%s)", counted(count, "step"))
	}
	p.line(s)
}
