package report

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// plain brings a value of evidence into one of the four kinds of the JSON form:
// int64 (uint64 where it is too large), float64, bool, string.
// Anything else becomes the text that %v gives.
func plain(value any) any {
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return ""
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return v.Uint()
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.Kind() == reflect.String:
		return v.String()
	}
	return fmt.Sprint(value)
}

// show writes a value of evidence for a person.
func show(value any) string {
	switch v := plain(value).(type) {
	case float64:
		return number(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case string:
		return clean(v)
	default:
		return fmt.Sprint(v)
	}
}

// number writes x with six digits; integers and powers of two exactly.
func number(x float64) string {
	if s, ok := notFinite(x); ok {
		return s
	}
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	short := strconv.FormatFloat(x, 'g', 6, 64)
	if y, err := strconv.ParseFloat(short, 64); err == nil && y == x {
		return short
	}
	if frac, exp := math.Frexp(x); frac == 0.5 {
		return fmt.Sprintf("2^%d (%s)", exp-1, short)
	}
	return short
}

// notFinite names a number that JSON cannot hold.
func notFinite(x float64) (string, bool) {
	switch {
	case math.IsInf(x, 1):
		return "inf", true
	case math.IsInf(x, -1):
		return "-inf", true
	case math.IsNaN(x):
		return "nan", true
	}
	return "", false
}

// maxRanges is how many ranges of steps are shown before the middle is left out.
const maxRanges = 6

// stepList is "steps 0-8, 10 (10 of 24)"; total 0 means that it is not known.
func stepList(ranges [][2]int, count, total int) string {
	if len(ranges) == 0 { // no step is named
		if count < 2 {
			return ""
		}
		return counted(count, "time")
	}
	if count == 1 && len(ranges) == 1 {
		return "step " + span(ranges[0])
	}
	if count == total {
		return "all " + counted(total, "step")
	}
	words := make([]string, 0, maxRanges+1)
	for i, r := range ranges {
		if len(ranges) > maxRanges && i == maxRanges-1 {
			words = append(words, "…", span(ranges[len(ranges)-1]))
			break
		}
		words = append(words, span(r))
	}
	s := "steps " + strings.Join(words, ", ")
	switch {
	case total > 0:
		s += fmt.Sprintf(" (%d of %d)", count, total)
	case len(ranges) > 1:
		s += fmt.Sprintf(" (%d)", count)
	}
	return s
}

func span(r [2]int) string {
	if r[0] == r[1] {
		return strconv.Itoa(r[0])
	}
	return fmt.Sprintf("%d-%d", r[0], r[1])
}

// unite merges closed ranges into ascending ones that do not touch, and counts what they hold.
func unite(ranges [][2]int) (united [][2]int, count int) {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b [2]int) int { return a[0] - b[0] })
	for _, r := range sorted {
		if n := len(united); n > 0 && r[0] <= united[n-1][1]+1 {
			united[n-1][1] = max(united[n-1][1], r[1])
		} else {
			united = append(united, r)
		}
	}
	for _, r := range united {
		count += r[1] - r[0] + 1
	}
	return united, count
}
