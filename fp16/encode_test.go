package fp16

import (
	"math"
	"testing"
)

func TestRoundTripOfEveryPattern(t *testing.T) {
	for _, f := range formats {
		for i := range 1 << 16 {
			b := uint16(i)
			want := b
			if f.isNaN(b) {
				want |= f.quiet
			}
			x := f.float32(b)
			if got := f.fromFloat32(x); got != want {
				t.Errorf("%s %#04x → float32 → %#04x, want %#04x", f.name, b, got, want)
			}
			if got := f.fromFloat64(widen(x)); got != want {
				t.Errorf("%s %#04x → float64 → %#04x, want %#04x", f.name, b, got, want)
			}
		}
	}
}

// widen is float64(x) that keeps the bits of a NaN, signalling ones included,
// on every platform.
func widen(x float32) float64 {
	if !math.IsNaN(float64(x)) {
		return float64(x)
	}
	b := uint64(math.Float32bits(x))
	return math.Float64frombits(b>>31<<63 | 0x7ff<<52 | b&(1<<23-1)<<29)
}

// Between two neighbours i and i+1 the result changes at the point half way,
// and at the point itself the even one wins. Checked at the point, at its
// neighbours in the operand's format and at the ends of the interval.
func TestEveryPointHalfWay(t *testing.T) {
	for _, f := range formats {
		for i := range int(f.inf) {
			lo, hi := uint16(i), uint16(i+1)
			even := lo + lo&1
			mid := f.mid(i)
			for _, c := range []struct {
				x    float64
				want uint16
			}{
				{f.lattice[i], lo},
				{nextDown(mid), lo},
				{mid, even},
				{nextUp(mid), hi},
				{nextDown(f.lattice[i+1]), hi},
			} {
				f.expect64(t, c.x, c.want)
			}
			m := float32(mid) // exact, see format.mid
			for _, c := range []struct {
				x    float32
				want uint16
			}{
				{nextDown32(m), lo},
				{m, even},
				{nextUp32(m), hi},
			} {
				f.expect32(t, c.x, c.want)
			}
		}
		f.expect64(t, math.MaxFloat64, f.inf)
		f.expect64(t, math.Inf(1), f.inf)
		f.expect64(t, math.SmallestNonzeroFloat64, 0)
		f.expect32(t, math.MaxFloat32, f.inf)
		f.expect32(t, float32(math.Inf(1)), f.inf)
		f.expect32(t, math.SmallestNonzeroFloat32, 0)
	}
}

func (f *format) expect64(t *testing.T, x float64, want uint16) {
	t.Helper()
	if got := f.fromFloat64(x); got != want {
		t.Errorf("%sFromFloat64(%x) = %#04x, want %#04x", f.name, x, got, want)
	}
	if got := f.fromFloat64(-x); got != want|f.sign {
		t.Errorf("%sFromFloat64(%x) = %#04x, want %#04x", f.name, -x, got, want|f.sign)
	}
}

func (f *format) expect32(t *testing.T, x float32, want uint16) {
	t.Helper()
	if got := f.fromFloat32(x); got != want {
		t.Errorf("%sFromFloat32(%x) = %#04x, want %#04x", f.name, x, got, want)
	}
	if got := f.fromFloat32(-x); got != want|f.sign {
		t.Errorf("%sFromFloat32(%x) = %#04x, want %#04x", f.name, -x, got, want|f.sign)
	}
}

// A float64 a little off a point half way is that very point as a float32:
// rounding twice goes to the even neighbour, rounding once to the nearer one.
func TestNoDoubleRounding(t *testing.T) {
	for _, f := range formats {
		traps := 0
		for i := range int(f.inf) {
			mid := f.mid(i)
			for _, x := range []float64{mid * (1 - 0x1p-40), mid * (1 + 0x1p-40), nextDown(mid), nextUp(mid)} {
				want := uint16(i)
				if x > mid {
					want++
				}
				f.expect64(t, x, want)
				if f.fromFloat32(float32(x)) != want {
					traps++
				}
			}
		}
		// As float32 all four are the point itself and go to its even neighbour.
		// Two of the four are nearer to the odd one: these are the traps.
		if traps != 2*int(f.inf) {
			t.Errorf("%s: %d of the operands are traps, want %d: the test has lost its point", f.name, traps, 2*int(f.inf))
		}
	}
}

// The rule of the package comment over all leading payload bits, with each of
// the trailing ones set alone, none set and all set.
func TestNaNPayloads(t *testing.T) {
	for _, f := range formats {
		for lead := range uint16(1) << f.fracBits {
			for _, sign := range []uint16{0, f.sign} {
				want := sign | f.inf | f.quiet | lead
				for _, tail := range tails(23 - f.fracBits) {
					b := uint32(sign)<<16 | 0xff<<23 | uint32(lead)<<(23-f.fracBits) | uint32(tail)
					if b<<9 == 0 {
						continue // infinity
					}
					if got := f.fromFloat32(math.Float32frombits(b)); got != want {
						t.Fatalf("%sFromFloat32(NaN %#08x) = %#04x, want %#04x", f.name, b, got, want)
					}
					if f == half && x448Encode(math.Float32frombits(b)) != want {
						t.Fatalf("x448/float16 disagrees with the rule at NaN %#08x", b)
					}
				}
				for _, tail := range tails(52 - f.fracBits) {
					b := uint64(sign)<<48 | 0x7ff<<52 | uint64(lead)<<(52-f.fracBits) | tail
					if b<<12 == 0 {
						continue // infinity
					}
					if got := f.fromFloat64(math.Float64frombits(b)); got != want {
						t.Fatalf("%sFromFloat64(NaN %#016x) = %#04x, want %#04x", f.name, b, got, want)
					}
				}
			}
		}
	}
}

func tails(bits int) []uint64 {
	all := []uint64{0, 1<<bits - 1}
	for i := range bits {
		all = append(all, 1<<i)
	}
	return all
}

func TestShiftRNEAgainstDivision(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for x := range uint32(1 << 10) {
			want := uint32(math.RoundToEven(float64(x) / float64(int(1)<<n)))
			if got := shiftRNE(x, n); got != want {
				t.Errorf("shiftRNE(%d, %d) = %d, want %d", x, n, got, want)
			}
			if got := shiftRNE(uint64(x), n); got != uint64(want) {
				t.Errorf("shiftRNE(uint64(%d), %d) = %d, want %d", x, n, got, want)
			}
		}
	}
}
