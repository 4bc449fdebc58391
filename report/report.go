// Package report prints what a check found: [Text] for a person at a terminal,
// [JSON] for a program, in the shape that [Schema] describes. It also prints
// the rules themselves, in a list or whole: [RuleList], [Explain], [RulesJSON].
//
// Every printer builds its output in memory and writes it at once. The same
// report gives the same bytes.
package report

import "ordercheck/check"

// Options of the forms that a person reads. The zero value is right for a file.
type Options struct {
	Color bool         // mark the text with ANSI colours
	Width int          // columns to wrap at, at least 40; 0 means 100
	Rules []check.Rule // where titles are looked up; nil means check.Rules
}

const (
	defaultWidth = 100
	minWidth     = 40
)

func (o Options) withDefaults() Options {
	if o.Width == 0 {
		o.Width = defaultWidth
	}
	o.Width = max(o.Width, minWidth)
	if o.Rules == nil {
		o.Rules = check.Rules
	}
	return o
}

// title returns what the rule says in a line, or "" for an id that is not known.
func (o Options) title(id string) string {
	for _, r := range o.Rules {
		if r.ID == id {
			return r.Title
		}
	}
	return ""
}
