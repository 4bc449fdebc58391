package main

import (
	"flag"
	"fmt"
	"strings"
)

// overview tells what ordercheck is and which verbs it has.
func overview() string {
	var b strings.Builder
	b.WriteString("ordercheck finds faults in the order of mixed-precision training steps.\n\n")
	b.WriteString("usage: ordercheck VERB [flags] [arguments]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(&b, "  %-8s  %s\n", v.name, v.brief)
	}
	fmt.Fprintf(&b, "  %-8s  %s\n", "help", "tell how a verb is used")
	b.WriteString("\nordercheck help VERB tells its flags.\n")
	return b.String()
}

// usage tells how the verb is used. What a flag's value is called stands in
// back quotes before its description: "`FILE`: where to write the report".
func (v *verb) usage() string {
	var b strings.Builder
	line := strings.TrimRight("usage: ordercheck "+v.name+" [flags] "+v.args, " ")
	fmt.Fprintf(&b, "%s\n\n%s%s.\n", line, strings.ToUpper(v.brief[:1]), v.brief[1:])
	type row struct{ left, right string }
	var rows []row
	width := 0
	v.flags.VisitAll(func(f *flag.Flag) {
		name, usage := flag.UnquoteUsage(f)
		left := strings.TrimSpace(dashed(f.Name) + " " + name)
		rows = append(rows, row{left, strings.TrimPrefix(usage, name+": ")})
		width = max(width, len(left))
	})
	b.WriteString("\nflags\n")
	for _, r := range rows {
		lines := strings.ReplaceAll(r.right, "\n", "\n"+strings.Repeat(" ", width+4))
		fmt.Fprintf(&b, "  %-*s  %s\n", width, r.left, lines)
	}
	if v.help != "" {
		b.WriteString("\n" + v.help)
	}
	return b.String()
}
