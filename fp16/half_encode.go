package fp16

import "math"

// HalfFromFloat32 returns the Half nearest to x, ties to even; see the package
// comment for overflow, subnormal numbers and NaN.
func HalfFromFloat32(x float32) Half {
	b := math.Float32bits(x)
	a := b &^ (1 << 31)

	// |x| ≥ 2^-14, normal: rebias E from 127 to 15 and round 13 bits of T away.
	// A carry out of T goes into E, which is right because encodings are ordered
	// as magnitudes. From 65520 on the carry makes 0x7c00, infinity; greater
	// operands, infinity among them, give more and are cut down to it.
	// (For smaller |x| this is garbage, replaced below.)
	h := min(shiftRNE(a-(127-15)<<23, 13), halfInf)

	// |x| < 2^-14, subnormal or rounding up to 2^-14: the encoding is |x| in
	// units of 2^-24, rounded. 0.5 + |x| lies in [0.5, 1), where the spacing of
	// float32 is 2^-24, and 0.5 is an even multiple of it: the addition rounds
	// |x| to the nearest multiple, ties to even, and the difference of the
	// encodings counts the multiples.
	s := math.Float32bits(math.Float32frombits(a)+0.5) - 126<<23
	if a < (127-14)<<23 {
		h = s
	}

	// NaN: quiet, with the upper 10 of 23 payload bits.
	if a > 0xff<<23 {
		h = halfInf | halfQuiet | a>>13&0x3ff
	}
	return Half(b>>16&halfSign | h)
}

// HalfFromFloat64 returns the Half nearest to x, ties to even, rounding once;
// see the package comment for overflow, subnormal numbers and NaN.
func HalfFromFloat64(x float64) Half {
	b := math.Float64bits(x)
	a := b &^ (1 << 63)

	// As in HalfFromFloat32, with bias 1023 and 52 bits of T: 42 go.
	h := min(shiftRNE(a-(1023-15)<<52, 42), halfInf)

	// The spacing of float64 in [2^28, 2^29) is 2^(28-52) = 2^-24.
	s := math.Float64bits(math.Float64frombits(a)+0x1p28) - (1023+28)<<52
	if a < (1023-14)<<52 {
		h = s
	}
	if a > 0x7ff<<52 {
		h = halfInf | halfQuiet | a>>42&0x3ff
	}
	return Half(b>>48&halfSign | h)
}
