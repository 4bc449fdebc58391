package fp16

import "math"

// Float32 returns the float32 that equals b: its encoding is that of b followed
// by 16 zero bits. A NaN keeps all its bits; a signalling one stays signalling.
func (b BFloat) Float32() float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// DecodeBFloat sets dst[i] to the float32 value of the little-endian BFloat in
// src[2i:2i+2], for each i. It panics if len(src) != 2·len(dst).
func DecodeBFloat(dst []float32, src []byte) {
	checkLengths("DecodeBFloat", len(dst), len(src))
	for i := range dst {
		dst[i] = (BFloat(src[2*i]) | BFloat(src[2*i+1])<<8).Float32()
	}
}
