package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"

	"ordercheck/check"
	"ordercheck/report"
)

// engine checks the named runs; tests put another one in its place.
var engine = run

const checkHelp = `A PATH is a recording, a folder, a file of tensors, or - for standard input.
Each PATH is one run.

exit status
  0  nothing wrong was found; the first line tells what could not be decided
  1  at least one finding of severity error
  2  something could not be read, or bad usage
  3  only with --strict: no error, but a rule of severity error lacked data
`

func checkVerb() *verb {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	format := choice(fs, "format", "the form of the report; text if not given", "text", "json")
	out := fs.String("o", "", "`FILE`: where to write the report, whole or not at all; standard output if not given")
	rules := fs.String("rules", "", "`LIST`: the rules to decide, by prefix; OC1001,OC2 means these alone,\n-OC6,-OC5002 all but these")
	strict := fs.Bool("strict", false, "exit with 3 if a rule of severity error lacked data")
	var maxNorm float64
	fs.Func("max-norm", "`X`: the threshold that the clip is meant to have", func(s string) (err error) {
		maxNorm, err = threshold(s)
		return err
	})
	return &verb{
		name: "check", args: "PATH…", brief: "find faults in recorded training steps", help: checkHelp, flags: fs,
		run: func(paths []string, s streams) (int, error) {
			if len(paths) == 0 {
				return exitUsage, errors.New("no PATH; name a recording, or - for standard input")
			}
			selected, err := selection(*rules, check.Rules)
			if err != nil {
				return exitUsage, err
			}
			r, err := engine(paths, check.Options{Rules: selected, MaxNorm: maxNorm})
			if r != nil {
				err = errors.Join(err, write(*out, s, func(w io.Writer, opt report.Options) error {
					if *format == "json" {
						return report.JSON(w, r)
					}
					return report.Text(w, r, opt)
				}))
			}
			return exitCode(r, err, *strict), err
		},
	}
}

// threshold reads the value of --max-norm.
func threshold(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("must be a positive number, such as 1.0")
	}
	return x, nil
}

// exitCode tells what a check came to: 2 before 1 before 3 before 0.
func exitCode(r *check.Report, err error, strict bool) int {
	if err != nil || r == nil {
		return exitUsage
	}
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			return exitFault
		}
	}
	for _, s := range r.Rules {
		if strict && s.Severity == check.Error && s.Status == check.NoData {
			return exitNoData
		}
	}
	return exitOK
}
