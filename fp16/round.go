package fp16

// shiftRNE returns x / 2^n rounded to the nearest integer, ties to even.
// It needs 1 ≤ n and x + 2^(n-1) < 2^bits.
//
// Proof: let x = q·2^n + r with 0 ≤ r < 2^n, and o = q mod 2. The sum below is
// q·2^n + r + 2^(n-1) - 1 + o, so its quotient is q + 1 exactly if
//
//	r + 2^(n-1) - 1 + o ≥ 2^n,  that is  r > 2^(n-1) - o,
//
// and else q. For even q (o = 0) that is r > 2^(n-1): more than half. For odd q
// (o = 1) it is r ≥ 2^(n-1): half goes up as well, to the even q + 1. It
// never reaches q + 2, as r - 1 + o < 2^n.
func shiftRNE[T uint32 | uint64](x T, n int) T {
	return (x + (1<<(n-1) - 1) + x>>n&1) >> n
}
