package report

import (
	"fmt"
	"io"
	"strings"

	"ordercheck/check"
)

// RuleList writes id, severity and title of each rule, one a line.
func RuleList(w io.Writer, rules []check.Rule, opt Options) error {
	p := &page{opt: opt.withDefaults()}
	for _, r := range rules {
		gap := strings.Repeat(" ", max(0, len(check.Warning)-len(r.Severity)))
		p.line(p.bold(r.ID) + "  " + p.severity(r.Severity, string(r.Severity)) + gap + "  " + r.Title)
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}

// Explain writes all that is to be said of the rules, one below the other.
func Explain(w io.Writer, rules []check.Rule, opt Options) error {
	p := &page{opt: opt.withDefaults()}
	for i, r := range rules {
		if i > 0 {
			p.printf("\n\n")
		}
		p.rule(r)
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}

func (p *page) rule(r check.Rule) {
	p.line(p.bold(r.ID) + "  " + r.Title)
	p.line(p.severity(r.Severity, string(r.Severity)))
	if r.Meaning != "" {
		p.line("")
		p.prose(r.Meaning, "")
	}
	p.code("wrong", r.Wrong)
	p.code("right", r.Right)
	if len(r.Mend) > 0 {
		p.section("how to mend it")
		width := 0
		for _, m := range r.Mend {
			width = max(width, columns(m.Framework))
		}
		for _, m := range r.Mend {
			first := fmt.Sprintf("  %-*s  ", width, m.Framework)
			p.buf.WriteString(hang(first, m.Text, columns(first), p.opt.Width))
		}
	}
	if r.Needs != "" {
		p.section("what a recording must hold")
		p.prose(r.Needs, "  ")
	}
	p.ruleNames("what follows from it", r.Explains)
	p.ruleNames("what it may follow from", p.explainedBy(r.ID))
	if len(r.Sources) > 0 {
		p.section("sources")
		for _, s := range r.Sources {
			p.buf.WriteString(hang("  ", s, 4, p.opt.Width))
		}
	}
}

func (p *page) section(name string) {
	p.line("")
	p.line(p.bold(name))
}

// prose wraps paragraphs that are parted by empty lines; an indented one stays as it is.
func (p *page) prose(text, indent string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line("")
		}
		lines := wrap(paragraph, p.opt.Width-len(indent))
		if strings.HasPrefix(paragraph, " ") { // a table or a formula
			lines = strings.Split(paragraph, "\n")
		}
		for _, l := range lines {
			p.line(indent + l)
		}
	}
}

// code shows a loop as it is written.
func (p *page) code(name, text string) {
	text = strings.Trim(text, "\n")
	if text == "" {
		return
	}
	p.section(name)
	for _, l := range strings.Split(text, "\n") {
		p.line(strings.TrimRight("    "+l, " \t"))
	}
}

func (p *page) ruleNames(name string, ids []string) {
	if len(ids) == 0 {
		return
	}
	p.section(name)
	for _, id := range ids {
		p.line(strings.TrimRight("  "+p.bold(id)+"  "+p.opt.title(id), " "))
	}
}

// explainedBy lists the rules that name id among those they explain.
func (p *page) explainedBy(id string) []string {
	var ids []string
	for _, r := range p.opt.Rules {
		for _, e := range r.Explains {
			if e == id {
				ids = append(ids, r.ID)
			}
		}
	}
	return ids
}
