package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "text - false []"},
		{"a b", "text - false [a b]"},
		{"a --format json b", "json - false [a b]"},
		{"-format=json a -o x --strict b", "json x true [a b]"},
		{"--strict=false a", "text - false [a]"},
		{"-o --strict a", "text --strict false [a]"},
		{"-o -- a", "text -- false [a]"},
		{"- a", "text - false [- a]"},
		{"a -- --strict -- b", "text - false [a --strict -- b]"},

		{"a -h", "flag: help requested"},
		{"--help", "flag: help requested"},
		{"-o", "-o needs a value"},
		{"a --format", "--format needs a value"},
		{"--format=", "--format : must be text or json"},
		{"--format txt", "--format txt: did you mean text?"},
		{"--format=html", "--format html: must be text or json"},
		{"--strict=maybe", "--strict maybe: parse error"},
		{"--strikt", "unknown flag --strikt; did you mean --strict?"},
		{"-formta=json", "unknown flag -formta; did you mean --format?"},
		{"--colour", "unknown flag --colour; ordercheck help try lists the flags"},
		{"---", "unknown flag ---; ordercheck help try lists the flags"},
	} {
		fs := flag.NewFlagSet("try", flag.ContinueOnError)
		format := choice(fs, "format", "", "text", "json")
		out := fs.String("o", "-", "")
		strict := fs.Bool("strict", false, "")
		rest, err := parse(&verb{name: "try", flags: fs}, strings.Fields(c.args))
		got := fmt.Sprint(*format, " ", *out, " ", *strict, " ", rest)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.args, got, c.want)
		}
		if wantHelp := strings.HasPrefix(c.want, "flag: help"); errors.Is(err, flag.ErrHelp) != wantHelp {
			t.Errorf("%s: error %v", c.args, err)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"check", "rules", "explain", "help"}
	for _, c := range []struct{ word, want string }{
		{"check", "check"},
		{"chekc", "check"},
		{"chek", "check"},
		{"rule", "rules"},
		{"explian", "explain"},
		{"hlep", "help"},
		{"frobnicate", ""},
		{"x", ""},
		{"", ""},
	} {
		if got := nearest(c.word, words); got != c.want {
			t.Errorf("nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}
