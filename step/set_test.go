package step

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowSet is the obvious set.
type slowSet map[int]bool

func (s slowSet) keep(want func(int) bool) slowSet {
	out := slowSet{}
	for i := range s {
		if want(i) {
			out[i] = true
		}
	}
	return out
}

// members straddle the words that a Set is made of.
var members = rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{0, 62, 63, 64, 65, 127, 128})), 0, 12)

func drawSet(t *rapid.T, label string) (Set, slowSet) {
	slow := slowSet{}
	indices := members.Draw(t, label)
	for _, i := range indices {
		slow[i] = true
	}
	return SetOf(indices...), slow
}

func TestPropertySet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, slowS := drawSet(t, "s")
		u, slowU := drawSet(t, "u")
		or := maps.Clone(slowS)
		maps.Copy(or, slowU)
		for _, c := range []struct {
			name string
			got  Set
			want slowSet
		}{
			{"s", s, slowS},
			{"u", u, slowU},
			{"s.And(u)", s.And(u), slowS.keep(func(i int) bool { return slowU[i] })},
			{"s.Minus(u)", s.Minus(u), slowS.keep(func(i int) bool { return !slowU[i] })},
			{"s.Or(u)", s.Or(u), or},
		} {
			want := slices.Sorted(maps.Keys(c.want))
			if got := c.got.Members(); !slices.Equal(got, want) {
				t.Fatalf("%s has the members %v, not %v", c.name, got, want)
			}
			if c.got.Len() != len(want) || c.got.Empty() != (len(want) == 0) {
				t.Fatalf("%s: Len %d, Empty %v for %v", c.name, c.got.Len(), c.got.Empty(), want)
			}
			for i := range 300 {
				if c.got.Has(i) != c.want[i] {
					t.Fatalf("%s.Has(%d) = %v", c.name, i, c.got.Has(i))
				}
			}
		}
		if got, want := s.Within(u), len(slowS.keep(func(i int) bool { return !slowU[i] })) == 0; got != want {
			t.Fatalf("%v.Within(%v) = %v", s.Members(), u.Members(), got)
		}
		if got, want := s.Meets(u), len(slowS.keep(func(i int) bool { return slowU[i] })) > 0; got != want {
			t.Fatalf("%v.Meets(%v) = %v", s.Members(), u.Members(), got)
		}
		if got := s.Members(); !slices.Equal(got, slices.Sorted(maps.Keys(slowS))) {
			t.Fatalf("an operation changed its operand to %v", got)
		}
	})
}

// The zero Set is the empty one.
func TestNilSet(t *testing.T) {
	var s Set
	full := SetOf(3, 70)
	switch {
	case !s.Empty(), s.Has(0), s.Len() != 0, len(s.Members()) != 0, !s.Within(s), !s.Within(full), full.Within(s), s.Meets(full), full.Meets(s):
		t.Error("the zero Set is not empty")
	case !s.And(full).Empty(), !s.Minus(full).Empty(), s.Or(full).Len() != 2, full.Minus(s).Len() != 2:
		t.Error("an operation with the zero Set is wrong")
	}
}
