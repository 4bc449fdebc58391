// Package fp16 converts between the two 16-bit floating-point formats of
// mixed-precision training and Go's float32 and float64: [Half] is IEEE
// 754-2019 binary16, [BFloat] is bfloat16.
//
//	             precision  exponents     largest finite      smallest normal  smallest nonzero
//	Half          11 bits   -14 …  15     65504               2^-14            2^-24
//	BFloat         8 bits  -126 … 127     about 3.39e38       2^-126           2^-133
//
// # Contract
//
// Widening (16 bits to float32) is exact: each finite value of either format
// is a float32.
//
// Narrowing (float32 or float64 to 16 bits) is convertFormat (IEEE 754-2019,
// section 5.4.2) under roundTiesToEven (section 4.3.1):
//
//   - the result is the nearest value of the format, and of two equally near
//     ones that with an even significand, as if the exponent had no upper bound;
//   - a magnitude that then exceeds the largest finite value becomes infinity
//     (section 7.4); this happens from the largest finite value plus half its
//     spacing, [OverflowHalf] = 65520 and [OverflowBFloat];
//   - subnormal results and operands are kept, nothing is flushed to zero but
//     what lies at or below half the smallest nonzero value;
//   - the sign is kept, that of zeros, infinities and NaNs included.
//
// A float64 is rounded once. The detour over float32 rounds twice and differs:
// 1 + 2^-11 + 2^-30 is nearer to 1 + 2^-10 than to 1, but as a float32 it is
// 1 + 2^-11, the point half way, which goes to 1.
//
// A NaN becomes a quiet NaN with the same sign and the leading bits of the
// payload (section 6.2.3 recommends that diagnostic information be kept).
// For Half this equals the VCVTPS2PH and VCVTPH2PS instructions and
// github.com/x448/float16 bit for bit; for BFloat it equals VCVTNEPS2BF16 (which,
// unlike this package, flushes subnormals).
//
// # Dependencies
//
// The package reads no file and no clock, uses no cgo and no third-party
// module; its only state is a table of decoded values, made at first use. All
// functions may be called concurrently. The Go code is the specification that
// any faster version has to equal bit for bit. No expression here has a product whose
// result is added to something, so no compiler can fuse one: results are the
// same on every platform.
package fp16
