package report

import (
	"math"
	"testing"
)

func TestShow(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{58504.2, "58504.2"},
		{58504.2431, "58504.2"},
		{65536.0, "65536"},
		{16777216.0, "16777216"},
		{123456789.0, "123456789"}, // an integer: exactly
		{0.0, "0"},
		{1.0 / 65536, "2^-16 (1.52588e-05)"},
		{0.25, "0.25"},
		{0.000030517578125, "2^-15 (3.05176e-05)"},
		{math.Ldexp(1, 100), "2^100 (1.26765e+30)"},
		{1e30, "1e+30"},
		{float32(0.1), "0.1"},
		{math.Inf(1), "inf"},
		{math.Inf(-1), "-inf"},
		{math.NaN(), "nan"},
		{int64(65504), "65504"},
		{uint16(7), "7"},
		{true, "yes"},
		{false, "no"},
		{"a\x1b[2J", `a\x1b[2J`},
		{nil, ""},
		{[]int{1, 2}, "[1 2]"},
	} {
		if got := show(c.value); got != c.want {
			t.Errorf("show(%v) = %q, want %q", c.value, got, c.want)
		}
	}
}

func TestStepList(t *testing.T) {
	for _, c := range []struct {
		ranges       [][2]int
		count, total int
		want         string
	}{
		{nil, 0, 24, ""},
		{nil, 1, 24, ""},
		{nil, 3, 0, "3 times"},
		{[][2]int{{5, 5}}, 1, 24, "step 5"},
		{[][2]int{{0, 8}}, 9, 0, "steps 0-8"},
		{[][2]int{{0, 8}}, 9, 24, "steps 0-8 (9 of 24)"},
		{[][2]int{{0, 8}, {10, 10}}, 10, 0, "steps 0-8, 10 (10)"},
		{[][2]int{{0, 23}}, 24, 24, "all 24 steps"},
		{[][2]int{{0, 0}, {2, 2}, {4, 4}, {6, 6}, {8, 8}, {10, 10}}, 6, 12, "steps 0, 2, 4, 6, 8, 10 (6 of 12)"},
		{[][2]int{{0, 0}, {2, 2}, {4, 4}, {6, 6}, {8, 8}, {10, 10}, {12, 12}}, 7, 14, "steps 0, 2, 4, 6, 8, …, 12 (7 of 14)"},
	} {
		if got := stepList(c.ranges, c.count, c.total); got != c.want {
			t.Errorf("stepList(%v, %d, %d) = %q, want %q", c.ranges, c.count, c.total, got, c.want)
		}
	}
}

func TestUnite(t *testing.T) {
	ranges := [][2]int{{4, 6}, {0, 1}, {2, 2}, {5, 9}}
	united, count := unite(ranges)
	if len(united) != 2 || united[0] != [2]int{0, 2} || united[1] != [2]int{4, 9} || count != 9 {
		t.Errorf("unite(%v) = %v, %d", ranges, united, count)
	}
	if ranges[0] != [2]int{4, 6} || ranges[1] != [2]int{0, 1} {
		t.Errorf("the argument is now %v", ranges)
	}
}
