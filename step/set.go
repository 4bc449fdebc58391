package step

import "math/bits"

// Set is a set of parameters, by their index in one rank's universe.
type Set []uint64

// SetOf returns the set of the given indices.
func SetOf(indices ...int) Set {
	var s Set
	for _, i := range indices {
		s = s.with(i)
	}
	return s
}

func (s Set) with(i int) Set {
	for len(s) <= i/64 {
		s = append(s, 0)
	}
	s[i/64] |= 1 << (i % 64)
	return s
}

// Has reports whether i is a member.
func (s Set) Has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

// Len is the number of members.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether there is no member.
func (s Set) Empty() bool { return s.Len() == 0 }

// And returns the members that both have.
func (s Set) And(t Set) Set {
	out := make(Set, min(len(s), len(t)))
	for i := range out {
		out[i] = s[i] & t[i]
	}
	return out
}

// Minus returns the members of s that t lacks.
func (s Set) Minus(t Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i]
		if i < len(t) {
			out[i] &^= t[i]
		}
	}
	return out
}

// Or returns the members that either has.
func (s Set) Or(t Set) Set {
	if len(s) < len(t) {
		s, t = t, s
	}
	out := append(Set(nil), s...)
	for i := range t {
		out[i] |= t[i]
	}
	return out
}

// Within reports whether every member of s is one of t.
func (s Set) Within(t Set) bool {
	for i, w := range s {
		if i < len(t) {
			w &^= t[i]
		}
		if w != 0 {
			return false
		}
	}
	return true
}

// Meets reports whether some member of s is one of t.
func (s Set) Meets(t Set) bool {
	for i := range min(len(s), len(t)) {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// Members lists the indices in rising order.
func (s Set) Members() []int {
	out := make([]int, 0, s.Len())
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			out = append(out, w*64+bits.TrailingZeros64(word))
		}
	}
	return out
}
