package fp16

// BFloat is the encoding of a bfloat16 number: the upper half of a binary32
// (float32) encoding, so p = 8 and emax = 127. It is no interchange format of
// IEEE 754-2019 but follows its rules (section 3.4 for the encoding); the
// source is Intel, "BFLOAT16 - Hardware Numerics Definition", revision 1.0,
// November 2018.
//
//	bit 15   sign S
//	14 … 7   biased exponent E
//	6 … 0    trailing significand T
//
//	E = 0          (-1)^S · 2^-126 · (0 + T·2^-7)       zero and subnormal
//	0 < E < 255    (-1)^S · 2^(E-127) · (1 + T·2^-7)    normal
//	E = 255        infinity if T = 0, else NaN; quiet if bit 6 is set
//
// Order and equality of encodings are as for [Half].
type BFloat uint16

// Magnitudes of bfloat16. They are untyped constants; the smallest ones are
// float32 numbers as well, subnormal where bfloat16 is.
const (
	// MaxBFloat is the largest finite magnitude, (2 - 2^-7)·2^127, about 3.3895e38.
	MaxBFloat = 0x1.fep127

	// OverflowBFloat is the smallest magnitude that rounds to infinity:
	// MaxBFloat plus half the spacing 2^(127-7) there (the tie goes to 2^128,
	// as for [OverflowHalf]). It is a finite float32.
	OverflowBFloat = 0x1.ffp127

	// SmallestNormalBFloat is the smallest magnitude with full precision, 2^emin = 2^(1-127).
	SmallestNormalBFloat = 0x1p-126

	// SmallestNonzeroBFloat is the smallest subnormal magnitude and the spacing
	// of all subnormal ones, 2^(emin-7).
	SmallestNonzeroBFloat = 0x1p-133

	// UnderflowBFloat is the largest magnitude that rounds to zero, half of
	// SmallestNonzeroBFloat.
	UnderflowBFloat = 0x1p-134

	// EpsilonBFloat is the distance from 1 to the next larger number, 2^(1-p).
	EpsilonBFloat = 0x1p-7
)

// Encodings and fields of bfloat16.
const (
	bfloatSign  = 0x8000
	bfloatInf   = 0x7f80 // E = 255, T = 0
	bfloatQuiet = 0x0040 // leading bit of T
)

// IsNaN reports whether b is not a number.
func (b BFloat) IsNaN() bool { return b&^bfloatSign > bfloatInf }

// IsInf reports whether b is an infinity: +Inf if sign > 0, -Inf if sign < 0,
// either if sign == 0 (as math.IsInf).
func (b BFloat) IsInf(sign int) bool {
	return sign >= 0 && b == bfloatInf || sign <= 0 && b == bfloatSign|bfloatInf
}

// IsFinite reports whether b is zero, subnormal or normal: neither infinite nor NaN.
func (b BFloat) IsFinite() bool { return b&^bfloatSign < bfloatInf }
