package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// streams are where results go, and everything else.
type streams struct{ out, err io.Writer }

// Exit codes. A lower line gives way to a higher one.
const (
	exitUsage  = 2 // something could not be read or written, or bad usage
	exitFault  = 1 // a finding of severity error
	exitNoData = 3 // --strict: a rule of severity error lacked data
	exitOK     = 0
)

// A verb is one thing that ordercheck does.
type verb struct {
	name  string
	args  string // as the usage line shows them
	brief string // what it does, in a line
	help  string // what the usage tells behind the flags
	flags *flag.FlagSet

	// run does it with the arguments that are no flags. An error is printed,
	// one line for each of its lines, and the exit code is then 2.
	run func(args []string, s streams) (code int, err error)
}

// verbs makes all verbs anew, with their flags unset.
func verbs() []*verb {
	return []*verb{checkVerb(), rulesVerb(), explainVerb()}
}

// ordercheck runs the verb that args name and returns the exit code.
func ordercheck(args []string, s streams) int {
	if len(args) == 0 {
		return fail(s, "ordercheck", errors.New("no verb; ordercheck help lists them"))
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return help(args, s)
	}
	v, err := verbNamed(name)
	if err != nil {
		return fail(s, "ordercheck", err)
	}
	rest, err := parse(v, args)
	if errors.Is(err, flag.ErrHelp) {
		return show(s, v.usage())
	}
	code := exitUsage
	if err == nil {
		code, err = v.run(rest, s)
	}
	if err != nil {
		return fail(s, "ordercheck "+v.name, err)
	}
	return code
}

func verbNamed(name string) (*verb, error) {
	var names []string
	for _, v := range verbs() {
		if v.name == name {
			return v, nil
		}
		names = append(names, v.name)
	}
	if near := nearest(name, append(names, "help")); near != "" {
		return nil, fmt.Errorf("unknown verb %q; did you mean %s?", name, near)
	}
	return nil, fmt.Errorf("unknown verb %q; ordercheck help lists the verbs", name)
}

// help prints how ordercheck, or the verb that args name, is used.
func help(args []string, s streams) int {
	if len(args) == 0 {
		return show(s, overview())
	}
	v, err := verbNamed(args[0])
	switch {
	case args[0] == "help" || strings.HasPrefix(args[0], "-"):
		return show(s, overview())
	case err != nil:
		return fail(s, "ordercheck help", err)
	}
	return show(s, v.usage())
}

func show(s streams, text string) int {
	if _, err := io.WriteString(s.out, text); err != nil {
		return fail(s, "ordercheck", err)
	}
	return exitOK
}

// fail prints an error behind the name of what failed.
func fail(s streams, who string, err error) int {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(s.err, "%s: %s\n", who, strings.TrimRight(line, "\n"))
	}
	return exitUsage
}
