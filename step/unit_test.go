package step

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// factor is one multiplication of a unit.
type factor struct {
	scale float64
	exp   int
}

// factors draws from few scales, so that they meet and cancel.
var factors = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) factor {
	return factor{
		scale: rapid.SampledFrom([]float64{1, 2, 8, 65536, 0.5, 1.1, 0x1p-24}).Draw(t, "scale"),
		exp:   rapid.IntRange(-3, 3).Draw(t, "exponent"),
	}
}), 0, 8)

func product(u Unit, fs []factor) Unit {
	for _, f := range fs {
		u = u.Times(f.scale, f.exp)
	}
	return u
}

// units draws known units and the one that is not.
var units = rapid.Custom(func(t *rapid.T) Unit {
	if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
		return UnknownUnit
	}
	return product(One, factors.Draw(t, "factors"))
})

func TestPropertyTimesCommutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, fs := units.Draw(t, "unit"), factors.Draw(t, "factors")
		order := rapid.Permutation(fs).Draw(t, "order")
		if a, b := product(u, fs), product(u, order); a.String() != b.String() || a.Equal(b) != u.Known() {
			t.Fatalf("%v and %v, in two orders", a, b)
		}
	})
}

func TestPropertyTimesInverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, fs := units.Draw(t, "unit"), factors.Draw(t, "factors")
		v := product(u, fs)
		for _, f := range fs {
			v = v.Times(f.scale, -f.exp)
		}
		if v.Equal(u) != u.Known() || v.IsOne() != u.IsOne() {
			t.Fatalf("%v became %v", u, v)
		}
	})
}

// A unit is its exponents: a map that counts them says the same.
func TestPropertyUnitIsItsExponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := factors.Draw(t, "a"), factors.Draw(t, "b")
		u, v := product(One, a), product(One, b)
		count := map[float64]int{}
		for _, f := range a {
			count[f.scale] += f.exp
		}
		distinct, scale, exp := 0, 1.0, 0
		for s, k := range count {
			if s != 1 && k != 0 {
				distinct, scale, exp = distinct+1, s, k
			}
		}
		k, s, ok := u.Exponent()
		if ok != (distinct <= 1) || ok && (k != exp || s != scale) {
			t.Fatalf("%v: Exponent() = %d, %g, %v; counted %v", u, k, s, ok, count)
		}
		if s, ok := u.IsScale(); ok != (distinct == 1 && exp == 1) || ok && s != scale {
			t.Fatalf("%v: IsScale() = %g, %v", u, s, ok)
		}
		if u.IsOne() != (distinct == 0) {
			t.Fatalf("%v: IsOne() = %v", u, u.IsOne())
		}
		for _, f := range b {
			count[f.scale] -= f.exp
		}
		same := true
		for s, k := range count {
			same = same && (s == 1 || k == 0)
		}
		if u.Equal(v) != same {
			t.Fatalf("%v.Equal(%v) = %v", u, v, u.Equal(v))
		}
	})
}

// Equal is an equivalence on known units, and equal ones read the same.
func TestPropertyEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, v, w := units.Draw(t, "u"), units.Draw(t, "v"), units.Draw(t, "w")
		switch {
		case u.Equal(u) != u.Known():
			t.Fatalf("%v.Equal(itself) = %v", u, u.Equal(u))
		case u.Equal(v) != v.Equal(u):
			t.Fatalf("Equal of %v and %v depends on their order", u, v)
		case u.Equal(v) && v.Equal(w) && !u.Equal(w):
			t.Fatalf("%v = %v = %v, but the first is not the last", u, v, w)
		case u.Known() && v.Known() && u.Equal(v) != (u.String() == v.String()):
			t.Fatalf("%v.Equal(%v) = %v", u, v, u.Equal(v))
		}
	})
}

// What is not known stays so, whatever it is multiplied by.
func TestUnknownUnit(t *testing.T) {
	u := UnknownUnit.Times(8, 1).Times(8, -1)
	if u.Known() || u.IsOne() || u.Equal(u) || u.Equal(One) || One.Equal(u) {
		t.Errorf("%v: Known %v, IsOne %v", u, u.Known(), u.IsOne())
	}
	if k, s, ok := u.Exponent(); ok {
		t.Errorf("Exponent() = %d, %g", k, s)
	}
	if s, ok := u.IsScale(); ok {
		t.Errorf("IsScale() = %g", s)
	}
}

// Times leaves its receiver alone: units are shared by parts.
func TestTimesCopies(t *testing.T) {
	u := ScaleUnit(8).Times(4, 2)
	for range 3 {
		u.Times(4, -2)
		u.Times(2, 1)
		u.Times(16, 1)
	}
	if got := u.String(); got != "4^2·8" {
		t.Errorf("the unit became %s", got)
	}
}

func TestUnitString(t *testing.T) {
	for _, c := range []struct {
		unit Unit
		want string
	}{
		{One, "1"},
		{UnknownUnit, "unknown"},
		{ScaleUnit(65536), "65536"},
		{ScaleUnit(65536).Times(65536, 1), "65536^2"},
		{One.Times(65536, -1), "65536^-1"},
		{ScaleUnit(65536).Times(2, -3), "2^-3·65536"},
		{ScaleUnit(math.Inf(1)), "+Inf"},
	} {
		if got := c.unit.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
