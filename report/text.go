package report

import (
	"bytes"
	"fmt"
	"io"

	"ordercheck/check"
)

// Text writes the report for a person: the verdict in the first line, each
// root finding whole with what follows from it in a line, what was decided and
// what was not, and the notes.
func Text(w io.Writer, r *check.Report, opt Options) error {
	p := &page{opt: opt.withDefaults()}
	perInput := make([][]*block, len(r.Inputs))
	var all []*block
	for i := range r.Inputs {
		perInput[i] = blocks(r.Findings, i)
		all = append(all, perInput[i]...)
	}

	p.line(p.headline(r, all))
	for i, in := range r.Inputs {
		total := r.Steps
		if len(r.Inputs) > 1 {
			total = 0 // of all inputs together: says nothing of this one
			if i == 0 || len(perInput[i-1])+len(perInput[i]) > 0 {
				p.line("")
			}
			p.line(p.inputLine(in, perInput[i]))
		}
		for _, b := range perInput[i] {
			p.block(b, perInput[i], total)
		}
	}
	p.statuses(r)
	p.notes(r)
	_, err := w.Write(p.buf.Bytes())
	return err
}

// A page collects the lines of a text.
type page struct {
	opt Options
	buf bytes.Buffer
}

func (p *page) line(s string)                  { p.buf.WriteString(s + "\n") }
func (p *page) printf(format string, a ...any) { fmt.Fprintf(&p.buf, format, a...) }

func (p *page) bold(s string) string   { return p.style("1", s) }
func (p *page) red(s string) string    { return p.style("1;31", s) }
func (p *page) yellow(s string) string { return p.style("33", s) }

func (p *page) style(code, s string) string {
	if !p.opt.Color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// severity paints s as findings of that severity are painted.
func (p *page) severity(of check.Severity, s string) string {
	switch of {
	case check.Error:
		return p.red(s)
	case check.Warning:
		return p.yellow(s)
	}
	return s
}
