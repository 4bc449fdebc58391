package fp16

import "math"

// BFloatFromFloat32 returns the BFloat nearest to x, ties to even; see the
// package comment for overflow, subnormal numbers and NaN.
func BFloatFromFloat32(x float32) BFloat {
	b := math.Float32bits(x)
	a := b &^ (1 << 31)

	// The formats share bias and exponents, so all finite operands are alike:
	// round 16 bits of T away. A carry out of T goes into E; from
	// OverflowBFloat on it makes 0x7f80, infinity. Infinity itself, T = 0, rounds to
	// itself.
	h := shiftRNE(a, 16)

	// NaN: quiet, with the upper 7 of 23 payload bits.
	if a > 0xff<<23 {
		h = bfloatQuiet | a>>16
	}
	return BFloat(b>>16&bfloatSign | h)
}

// BFloatFromFloat64 returns the BFloat nearest to x, ties to even, rounding
// once; see the package comment for overflow, subnormal numbers and NaN.
func BFloatFromFloat64(x float64) BFloat {
	b := math.Float64bits(x)
	a := b &^ (1 << 63)

	// |x| ≥ 2^-126, normal: as in HalfFromFloat64, with bias 127 and 7 bits of T: 45 go.
	h := min(shiftRNE(a-(1023-127)<<52, 45), bfloatInf)

	// |x| < 2^-126: the encoding is |x| in units of 2^-133, and the spacing of
	// float64 in [2^-81, 2^-80) is 2^(-81-52) = 2^-133.
	s := math.Float64bits(math.Float64frombits(a)+0x1p-81) - (1023-81)<<52
	if a < (1023-126)<<52 {
		h = s
	}
	if a > 0x7ff<<52 {
		h = bfloatInf | bfloatQuiet | a>>45&0x7f
	}
	return BFloat(b>>48&bfloatSign | h)
}
