package main

import (
	"flag"
	"fmt"
	"io"

	"ordercheck/check"
	"ordercheck/report"
)

func rulesVerb() *verb {
	fs := flag.NewFlagSet("rules", flag.ContinueOnError)
	format := choice(fs, "format", "the form of the list; text if not given", "text", "json")
	return &verb{
		name: "rules", args: "", brief: "list the rules: id, severity of a finding, what is wrong", flags: fs,
		run: func(args []string, s streams) (int, error) {
			if len(args) > 0 {
				return exitUsage, fmt.Errorf("unexpected argument %q; ordercheck explain tells about one rule", args[0])
			}
			return exitOK, write("", s, func(w io.Writer, opt report.Options) error {
				if *format == "json" {
					return report.RulesJSON(w, check.Rules, false)
				}
				return report.RuleList(w, check.Rules, opt)
			})
		},
	}
}
