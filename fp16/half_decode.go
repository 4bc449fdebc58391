package fp16

import (
	"math"
	"sync"
)

// Float32 returns the float32 that equals h. Every finite Half is one:
// its 11 bits of precision fit into 24 and its exponents into -126 … 127.
// A signalling NaN becomes quiet; sign and payload are kept (as VCVTPH2PS does).
func (h Half) Float32() float32 {
	// Normal: shift T to its place (10 to 23 bits) and rebias E from 15 to 127.
	a := uint32(h&^halfSign) << 13
	f := a + (127-15)<<23

	// Subnormal (E = 0): the value is T·2^-24. With E set to 1 the same T
	// denotes 2^-14 + T·2^-24, a normal number; taking 2^-14 away again is exact
	// because the difference is below 2^10 units of 2^-24. No operand is a
	// subnormal float32, which some processors are slow at. The difference
	// stands outside the if so that it compiles to a conditional move:
	// gradients are a mixture that no branch predictor can guess.
	s := math.Float32bits(math.Float32frombits(f+1<<23) - SmallestNormalHalf)
	if a < 1<<23 {
		f = s
	}

	// Infinity and NaN (E = 31): E becomes 255; a nonzero T gets the quiet bit.
	if a >= halfInf<<13 {
		f = a | 0xff<<23
		if a > halfInf<<13 {
			f |= halfQuiet << 13
		}
	}
	return math.Float32frombits(f | uint32(h&halfSign)<<16)
}

// DecodeHalf sets dst[i] to the float32 value of the little-endian Half in
// src[2i:2i+2], for each i. It panics if len(src) != 2·len(dst).
func DecodeHalf(dst []float32, src []byte) {
	checkLengths("DecodeHalf", len(dst), len(src))
	table := halfTable()
	for i := range dst {
		dst[i] = table[uint16(src[2*i])|uint16(src[2*i+1])<<8]
	}
}

// halfTable holds Half(i).Float32() at index i. It is 256 KiB, made at first
// use in about 0.2 ms, and decodes two to eight times as fast as Float32 does
// (BenchmarkDecode): most where many values are infinite, as they are on a
// step that overflowed.
var halfTable = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		t[i] = Half(i).Float32()
	}
	return t
})
