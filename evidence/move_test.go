package evidence

import (
	"math"
	"testing"

	"ordercheck/step"
)

// moved compares pairs of tensors, by parameter.
func moved(t *testing.T, pairs ...[2]vector) Move {
	t.Helper()
	m := Move{}
	for i, p := range pairs {
		c, err := Compare(p[0], p[1], FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		m[i] = c
	}
	return m
}

// One factor for all tensors, if there is one within rounding.
func TestMoveFactor(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		move   Move
		factor float64
		ok     bool
	}{
		{"nothing", Move{}, 0, false},
		{"zeros", moved(t, [2]vector{{0}, {0}}), 0, false},
		{"one tensor", moved(t, [2]vector{{1, 2}, {0.5, 1}}), 0.5, true},
		{"two tensors", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{8}, {4}}), 0.5, true},
		{"zeros beside", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{0}, {0}}), 0.5, true},
		{"nothing finite beside", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{nan}, {nan}}), 0.5, true},
		{"two factors", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{1}, {0.25}}), 0, false},
		{"a tensor without a factor", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{1, 1}, {0.5, 0.25}}), 0, false},
		{"a tensor that vanished", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{1}, {0}}), 0, false},
		{"rounded", moved(t, [2]vector{{1}, {0.5}}, [2]vector{{1}, {0.5 + 0x1p-24}}), 0.5 + 0x1p-25, true},
		{"negative", moved(t, [2]vector{{1}, {-2}}, [2]vector{{3}, {-6}}), -2, true},
		{"opposite signs", moved(t, [2]vector{{1}, {-2}}, [2]vector{{1}, {2}}), 0, false},
	} {
		if got, ok := c.move.Factor(); got != c.factor || ok != c.ok {
			t.Errorf("%s: Factor() = %g, %v", c.name, got, ok)
		}
	}
}

func TestMove(t *testing.T) {
	m := moved(t, [2]vector{{3, 4}, {3, 4}}, [2]vector{{12, math.Inf(1)}, {6, 0}})
	if b, a := m.Before(), m.After(); b != (Stats{N: 4, NonFinite: 1, Max: 12, SumSq: 169}) || a != (Stats{N: 4, Max: 6, SumSq: 61}) {
		t.Errorf("before %+v, after %+v", b, a)
	}
	first, second := m.Only(step.SetOf(0, 7)), m.Only(step.SetOf(1))
	if len(first) != 1 || !first.Still() || second.Still() || m.Still() || !(Move{}).Still() {
		t.Errorf("the first still %v, the second %v, both %v", first.Still(), second.Still(), m.Still())
	}
}

// The limit that tensors share that were scaled down.
func TestCommon(t *testing.T) {
	length := func(_ int, c Change) float64 { return c.After.Norm() }
	pair := func(before, after float64) [2]vector { return [2]vector{{before}, {after}} }
	for _, c := range []struct {
		name  string
		move  Move
		limit float64
		ok    bool
	}{
		{"two", moved(t, pair(3, 1), pair(5, 1)), 1, true},
		{"two, and one below", moved(t, pair(3, 1), pair(5, 1), pair(0.5, 0.5)), 1, true},
		{"one", moved(t, pair(3, 1), pair(0.5, 0.5)), 1, false},
		{"two limits", moved(t, pair(3, 1), pair(5, 2)), 0, false},
		{"nearly one", moved(t, pair(3, 1), pair(5, 1.00005)), 1.00005, true},
		{"grown", moved(t, pair(0.5, 1), pair(0.25, 1)), 0, false},
	} {
		if limit, ok := common(c.move, length); limit != c.limit || ok != c.ok {
			t.Errorf("%s: %g, %v", c.name, limit, ok)
		}
	}
	if limit, ok := common(moved(t, pair(3, 1), pair(5, 1)), func(int, Change) float64 { return math.NaN() }); ok {
		t.Errorf("of what cannot be measured: %g", limit)
	}
}

// A plateau: the largest value is shared by two, and by half of all.
func TestPlateau(t *testing.T) {
	for _, c := range []struct {
		values []float64
		slack  float64
		limit  float64
		ok     bool
	}{
		{nil, 0, 0, false},
		{[]float64{1}, 0, 1, false},
		{[]float64{1, 1}, 0, 1, true},
		{[]float64{1, 1, 0.5, 0.2}, 0, 1, true},
		{[]float64{1, 1, 0.5, 0.2, 0.1}, 0, 1, false},
		{[]float64{1, 1.000005, 0.5}, 1e-5, 1.000005, true},
		{[]float64{1, 1.000005, 0.5}, 0, 1.000005, false},
		{[]float64{1, 1, 2}, 0, 2, false},
	} {
		if limit, ok := plateau(c.values, c.slack); limit != c.limit || ok != c.ok {
			t.Errorf("%v: %g, %v", c.values, limit, ok)
		}
	}
}
