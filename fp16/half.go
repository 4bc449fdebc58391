package fp16

// Half is the encoding of an IEEE 754-2019 binary16 number (section 3.4, and
// table 3.5: k = 16, p = 11, emax = 15):
//
//	bit 15   sign S
//	14 … 10  biased exponent E
//	9 … 0    trailing significand T
//
//	E = 0         (-1)^S · 2^-14 · (0 + T·2^-10)       zero and subnormal
//	0 < E < 31    (-1)^S · 2^(E-15) · (1 + T·2^-10)    normal
//	E = 31        infinity if T = 0, else NaN; quiet if bit 9 is set (section 6.2.1)
//
// Without the sign bit, encodings are ordered as the magnitudes they denote,
// infinity above all finite ones: adding 1 gives the next magnitude. Narrowing
// rests on that. Two Half are the same number if their Float32 are equal with
// ==; comparing Half with == compares encodings, which parts +0 from -0.
type Half uint16

// Magnitudes of binary16.
const (
	// MaxHalf is the largest finite magnitude, 65504: all significand bits set
	// at the largest exponent, (2 - 2^-10)·2^15.
	MaxHalf = 0x1.ffcp15

	// OverflowHalf is the smallest magnitude that rounds to infinity, 65520:
	// MaxHalf plus half the spacing 2^(15-10) there. At the point itself the
	// tie goes to 2^16, whose significand is even, and 2^16 is out of range.
	OverflowHalf = 0x1.ffep15

	// SmallestNormalHalf is the smallest magnitude with full precision, 2^emin = 2^(1-15).
	SmallestNormalHalf = 0x1p-14

	// SmallestNonzeroHalf is the smallest subnormal magnitude and the spacing of
	// all subnormal ones, 2^(emin-10).
	SmallestNonzeroHalf = 0x1p-24

	// UnderflowHalf is the largest magnitude that rounds to zero, half of
	// SmallestNonzeroHalf: at the point itself the tie goes to 0, which is even.
	UnderflowHalf = 0x1p-25

	// EpsilonHalf is the distance from 1 to the next larger number, 2^(1-p).
	EpsilonHalf = 0x1p-10
)

// Encodings and fields of binary16.
const (
	halfSign  = 0x8000
	halfInf   = 0x7c00 // E = 31, T = 0
	halfQuiet = 0x0200 // leading bit of T
)

// IsNaN reports whether h is not a number.
func (h Half) IsNaN() bool { return h&^halfSign > halfInf }

// IsInf reports whether h is an infinity: +Inf if sign > 0, -Inf if sign < 0,
// either if sign == 0 (as math.IsInf).
func (h Half) IsInf(sign int) bool {
	return sign >= 0 && h == halfInf || sign <= 0 && h == halfSign|halfInf
}

// IsFinite reports whether h is zero, subnormal or normal: neither infinite nor NaN.
func (h Half) IsFinite() bool { return h&^halfSign < halfInf }
