package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// wrap breaks the words of s into lines of at most width columns. A longer
// word stands on a line of its own. No words give no lines.
func wrap(s string, width int) []string {
	var lines []string
	var line string
	for _, word := range strings.Fields(s) {
		word = clean(word)
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// hang wraps s behind first: later lines are indented by rest columns.
func hang(first, s string, rest, width int) string {
	lines := wrap(s, width-max(rest, columns(first)))
	if len(lines) == 0 {
		return strings.TrimRight(first, " ") + "\n"
	}
	return first + strings.Join(lines, "\n"+strings.Repeat(" ", rest)) + "\n"
}

func columns(s string) int { return utf8.RuneCountInString(s) }

// clean writes what cannot be printed as an escape, so that a name in a
// recording cannot move the cursor of the terminal it is shown on.
func clean(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteString(s[:n])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
}

// name writes the name of a file on a line of text, in quotes where its ends could not be seen.
func name(s string) string {
	if s == "" || s != strings.TrimSpace(s) {
		return strconv.Quote(s)
	}
	return clean(s)
}

// counted is "1 step", "2 steps".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// firstOf joins the first few words and says how many are left out.
func firstOf(words []string, few int) string {
	if len(words) <= few+1 {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:few], ", "), len(words)-few)
}
