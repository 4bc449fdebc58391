package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// parse sets the verb's flags and returns the arguments that are none. Flags
// may stand before and behind arguments, with one dash or two; behind "--"
// everything is an argument, and "-" always is.
// The error is flag.ErrHelp where help was asked for.
func parse(v *verb, args []string) (rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return append(rest, args...), nil
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			rest = append(rest, arg)
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if name == "h" || name == "help" {
			return nil, flag.ErrHelp
		}
		f := v.flags.Lookup(name)
		switch {
		case f == nil:
			return nil, unknownFlag(v, arg, name)
		case given:
		case isSwitch(f):
			value = "true"
		case len(args) == 0:
			return nil, fmt.Errorf("%s needs a value", dashed(name))
		default:
			value, args = args[0], args[1:]
		}
		if err := v.flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("%s %s: %w", dashed(name), value, err)
		}
	}
	return rest, nil
}

func unknownFlag(v *verb, arg, name string) error {
	var names []string
	v.flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	shown, _, _ := strings.Cut(arg, "=")
	if near := nearest(name, names); near != "" {
		return fmt.Errorf("unknown flag %s; did you mean %s?", shown, dashed(near))
	}
	return fmt.Errorf("unknown flag %s; ordercheck help %s lists the flags", shown, v.name)
}

// isSwitch tells whether a flag may stand without a value.
func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// dashed is a flag's name as the usage writes it: -o, --format.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// choice defines a flag that takes one of a few words, the first if it is not set.
func choice(fs *flag.FlagSet, name, usage string, words ...string) *string {
	value := words[0]
	fs.Func(name, "`"+strings.Join(words, "|")+"`: "+usage, func(s string) error {
		if !slices.Contains(words, s) {
			if near := nearest(s, words); near != "" {
				return fmt.Errorf("did you mean %s?", near)
			}
			return fmt.Errorf("must be %s", strings.Join(words, " or "))
		}
		value = s
		return nil
	})
	return &value
}
