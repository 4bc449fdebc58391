package fp16

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// operands generates float64 operands of a conversion to f, biased to where
// rounding changes: around numbers of the format and the points half way
// between them, by a few float64 or float32 neighbours, and at the edges of all
// three formats. A third are plain encodings, NaN among them.
func (f *format) operands() *rapid.Generator[float64] {
	last := int(f.inf) - 1
	index := rapid.OneOf(
		rapid.IntRange(0, last),
		rapid.SampledFrom([]int{0, 1, 2, 1<<f.fracBits - 2, 1<<f.fracBits - 1, 1 << f.fracBits, last - 1, last}),
	)
	near := rapid.Custom(func(t *rapid.T) float64 {
		i := index.Draw(t, "encoding")
		x := f.lattice[i]
		if rapid.Bool().Draw(t, "half way") {
			x = f.mid(i)
		}
		off := rapid.IntRange(-3, 3).Draw(t, "neighbours away")
		if rapid.Bool().Draw(t, "float32") {
			x = float64(math.Float32frombits(uint32(max(0, int(math.Float32bits(float32(x)))+off))))
		} else {
			x = math.Float64frombits(uint64(max(0, int64(math.Float64bits(x))+int64(off))))
		}
		if rapid.Bool().Draw(t, "negative") {
			x = -x
		}
		return x
	})
	edges := rapid.SampledFrom([]float64{
		0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(),
		f.max, f.overflow, f.smallestNormal, f.smallest, f.underflow,
		math.MaxFloat64, math.SmallestNonzeroFloat64, 0x1p-1022, math.MaxFloat32, math.SmallestNonzeroFloat32, 0x1p-126,
	})
	return rapid.OneOf(near, edges, rapid.Map(rapid.Uint64(), math.Float64frombits))
}

func TestPropertyFromFloat64EqualsSearch(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x := f.operands().Draw(t, "x")
			if got, want := f.fromFloat64(x), f.nearest(x); got != want {
				t.Fatalf("%sFromFloat64(%x) = %#04x, the search finds %#04x", f.name, x, got, want)
			}
		}))
	}
}

func TestPropertyFromFloat32EqualsFromFloat64(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x := float32(f.operands().Draw(t, "x"))
			if got, want := f.fromFloat32(x), f.fromFloat64(widen(x)); got != want {
				t.Fatalf("%sFromFloat32(%x) = %#04x, FromFloat64 of the same number %#04x", f.name, x, got, want)
			}
		}))
	}
}

// roundTiesToEven is monotonic: x ≤ y implies round(x) ≤ round(y).
func TestPropertyMonotonic(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x, y := f.operands().Draw(t, "x"), f.operands().Draw(t, "y")
			if !(x <= y) {
				x, y = y, x
			}
			rx, ry := f.float32(f.fromFloat64(x)), f.float32(f.fromFloat64(y))
			if x <= y && !(rx <= ry) {
				t.Fatalf("%s: %x ≤ %x but they round to %x and %x", f.name, x, y, rx, ry)
			}
		}))
	}
}

// The error of one rounding in the normal range is at most |x|·ε/2 (half a
// spacing), and below it at most half the smallest nonzero number.
func TestPropertyErrorBound(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x := f.operands().Draw(t, "x")
			if !(math.Abs(x) < f.overflow) {
				return
			}
			bound := max(math.Abs(x)*f.epsilon/2, f.smallest/2)
			if err := math.Abs(float64(f.float32(f.fromFloat64(x))) - x); err > bound {
				t.Fatalf("%sFromFloat64(%x) is off by %g, more than %g", f.name, x, err, bound)
			}
		}))
	}
}
