package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"ordercheck/check"
	"ordercheck/report"
)

func explainVerb() *verb {
	fs := flag.NewFlagSet("explain", flag.ContinueOnError)
	format := choice(fs, "format", "the form of the explanation; text if not given", "text", "json")
	return &verb{
		name: "explain", args: "RULE…", brief: "tell all about a rule: why it matters, a wrong loop, a right one, how to mend it", flags: fs,
		run: func(args []string, s streams) (int, error) {
			rules, err := rulesNamed(args, check.Rules)
			if err != nil {
				return exitUsage, err
			}
			return exitOK, write("", s, func(w io.Writer, opt report.Options) error {
				if *format == "json" {
					return report.RulesJSON(w, rules, true)
				}
				return report.Explain(w, rules, opt)
			})
		},
	}
}

// rulesNamed finds the rules with these ids, in any case of letters.
func rulesNamed(ids []string, rules []check.Rule) ([]check.Rule, error) {
	if len(ids) == 0 {
		return nil, errors.New("no RULE; ordercheck rules lists them")
	}
	var named []check.Rule
	for _, id := range ids {
		upper := strings.ToUpper(id)
		i := slices.IndexFunc(rules, func(r check.Rule) bool { return r.ID == upper })
		if i < 0 {
			return nil, unknownRule(fmt.Sprintf("unknown rule %s", id), upper, rules)
		}
		named = append(named, rules[i])
	}
	return named, nil
}
