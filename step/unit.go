package step

import (
	"fmt"
	"sort"
	"strings"
)

// Unit is what a gradient (or a threshold, a norm) is measured in: a product of
// powers of loss scales. The empty product is the true gradient's unit, 1.
// Scales are told apart by value: two epochs in which the scale is the same are
// the same unit, because every number is.
type Unit struct {
	unknown bool
	powers  []power // sorted by scale, no exponent is zero
}

type power struct {
	scale float64
	exp   int
}

// One is the unit of true gradients.
var One = Unit{}

// UnknownUnit is that of a buffer whose content is not known.
var UnknownUnit = Unit{unknown: true}

// ScaleUnit is S: gradients of a loss that was multiplied by s.
func ScaleUnit(s float64) Unit { return One.Times(s, 1) }

// Times returns u·s^exp. Multiplying by the scale 1 changes nothing.
func (u Unit) Times(s float64, exp int) Unit {
	if u.unknown || s == 1 || exp == 0 {
		return u
	}
	out := make([]power, 0, len(u.powers)+1)
	found := false
	for _, p := range u.powers {
		if p.scale == s {
			found = true
			p.exp += exp
			if p.exp == 0 {
				continue
			}
		}
		out = append(out, p)
	}
	if !found {
		out = append(out, power{s, exp})
		sort.Slice(out, func(i, j int) bool { return out[i].scale < out[j].scale })
	}
	return Unit{powers: out}
}

// Known reports whether the unit is known at all.
func (u Unit) Known() bool { return !u.unknown }

// IsOne reports whether u is known to be the unit of true gradients.
func (u Unit) IsOne() bool { return !u.unknown && len(u.powers) == 0 }

// Equal reports whether both are known and the same.
func (u Unit) Equal(v Unit) bool {
	if u.unknown || v.unknown || len(u.powers) != len(v.powers) {
		return false
	}
	for i := range u.powers {
		if u.powers[i] != v.powers[i] {
			return false
		}
	}
	return true
}

// same reports whether both are equal, or neither is known.
func (u Unit) same(v Unit) bool { return u.Equal(v) || u.unknown && v.unknown }

// Exponent returns k and the scale if the unit is S^k for one scale S; k = 0 is
// the true gradient. ok is false for an unknown unit or one of several scales.
func (u Unit) Exponent() (k int, scale float64, ok bool) {
	switch {
	case u.unknown || len(u.powers) > 1:
		return 0, 0, false
	case len(u.powers) == 0:
		return 0, 1, true
	}
	return u.powers[0].exp, u.powers[0].scale, true
}

// IsScale reports whether the unit is S^1, and for which S.
func (u Unit) IsScale() (float64, bool) {
	k, s, ok := u.Exponent()
	return s, ok && k == 1
}

// Scales returns, of a unit a/b, the scale a that multiplies and the scale b that
// divides; 1 for one that is missing.
func (u Unit) Scales() (times, over float64) {
	times, over = 1, 1
	for _, p := range u.powers {
		switch {
		case p.exp > 0:
			times = p.scale
		case p.exp < 0:
			over = p.scale
		}
	}
	return times, over
}

func (u Unit) String() string {
	if u.unknown {
		return "unknown"
	}
	if len(u.powers) == 0 {
		return "1"
	}
	var b strings.Builder
	for i, p := range u.powers {
		if i > 0 {
			b.WriteString("·")
		}
		fmt.Fprintf(&b, "%g", p.scale)
		if p.exp != 1 {
			fmt.Fprintf(&b, "^%d", p.exp)
		}
	}
	return b.String()
}
