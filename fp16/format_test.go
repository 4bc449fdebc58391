package fp16

import (
	"math"
	"sort"

	"github.com/x448/float16"
)

// format lets one table of tests run over both types. lattice and nearest are
// the slow, obvious twin of the conversions: they use neither bit fields of
// wider formats nor rounding tricks.
type format struct {
	name             string
	fracBits         int // p - 1
	maxExp           int // emax
	inf, quiet, sign uint16

	float32     func(uint16) float32
	fromFloat32 func(float32) uint16
	fromFloat64 func(float64) uint16
	decode      func([]float32, []byte)

	isNaN, isFinite func(uint16) bool
	isInf           func(uint16, int) bool

	max, overflow, smallestNormal, smallest, underflow, epsilon float64

	lattice []float64 // lattice[i] is the magnitude that encoding i denotes; 2^(maxExp+1) at inf
}

var formats = []*format{half, bfloat}

var half = (&format{
	name: "Half", fracBits: 10, maxExp: 15, inf: 0x7c00, quiet: 0x0200, sign: 0x8000,
	float32:     func(b uint16) float32 { return Half(b).Float32() },
	fromFloat32: func(x float32) uint16 { return uint16(HalfFromFloat32(x)) },
	fromFloat64: func(x float64) uint16 { return uint16(HalfFromFloat64(x)) },
	decode:      DecodeHalf,
	isNaN:       func(b uint16) bool { return Half(b).IsNaN() },
	isFinite:    func(b uint16) bool { return Half(b).IsFinite() },
	isInf:       func(b uint16, sign int) bool { return Half(b).IsInf(sign) },
	max:         MaxHalf, overflow: OverflowHalf, smallestNormal: SmallestNormalHalf,
	smallest: SmallestNonzeroHalf, underflow: UnderflowHalf, epsilon: EpsilonHalf,
}).withLattice()

var bfloat = (&format{
	name: "BFloat", fracBits: 7, maxExp: 127, inf: 0x7f80, quiet: 0x0040, sign: 0x8000,
	float32:     func(b uint16) float32 { return BFloat(b).Float32() },
	fromFloat32: func(x float32) uint16 { return uint16(BFloatFromFloat32(x)) },
	fromFloat64: func(x float64) uint16 { return uint16(BFloatFromFloat64(x)) },
	decode:      DecodeBFloat,
	isNaN:       func(b uint16) bool { return BFloat(b).IsNaN() },
	isFinite:    func(b uint16) bool { return BFloat(b).IsFinite() },
	isInf:       func(b uint16, sign int) bool { return BFloat(b).IsInf(sign) },
	max:         MaxBFloat, overflow: OverflowBFloat, smallestNormal: SmallestNormalBFloat,
	smallest: SmallestNonzeroBFloat, underflow: UnderflowBFloat, epsilon: EpsilonBFloat,
}).withLattice()

// withLattice fills in the magnitudes from the definition in IEEE 754-2019,
// section 3.4. The entry at inf is what the format would hold there, had its
// exponent no upper bound: the value that section 7.4 rounds to before it overflows.
func (f *format) withLattice() *format {
	for i := range int(f.inf) + 1 {
		e, t := i>>f.fracBits, i&(1<<f.fracBits-1)
		if e == 0 {
			e = 1
		} else {
			t += 1 << f.fracBits
		}
		f.lattice = append(f.lattice, math.Ldexp(float64(t), e-f.maxExp-f.fracBits))
	}
	return f
}

// mid returns the point half way between the magnitudes of encodings i and i+1.
// It is exact: it has one bit more than they have, and they have at most 11.
func (f *format) mid(i int) float64 { return (f.lattice[i] + f.lattice[i+1]) / 2 }

// nearest is fromFloat64 by search: the last magnitude ≤ |x|, or the one after
// it if |x| is beyond the point half way, or at it and the last one is odd.
func (f *format) nearest(x float64) uint16 {
	var sign uint16
	if math.Signbit(x) {
		sign = f.sign
	}
	if math.IsNaN(x) {
		payload := uint16(math.Float64bits(x) >> (52 - f.fracBits) & (1<<f.fracBits - 1))
		return sign | f.inf | f.quiet | payload
	}
	m := math.Abs(x)
	i := sort.Search(len(f.lattice), func(i int) bool { return f.lattice[i] > m }) - 1
	if i == int(f.inf) {
		return sign | f.inf
	}
	if mid := f.mid(i); m > mid || m == mid && i%2 == 1 {
		i++
	}
	return sign | uint16(i)
}

func x448Encode(x float32) uint16  { return float16.Fromfloat32(x).Bits() }
func x448Decode(b uint16) float32  { return float16.Frombits(b).Float32() }
func nextUp32(x float32) float32   { return math.Nextafter32(x, float32(math.Inf(1))) }
func nextDown32(x float32) float32 { return math.Nextafter32(x, float32(math.Inf(-1))) }
func nextUp(x float64) float64     { return math.Nextafter(x, math.Inf(1)) }
func nextDown(x float64) float64   { return math.Nextafter(x, math.Inf(-1)) }
