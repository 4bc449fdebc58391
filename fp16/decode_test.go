package fp16

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestFloat32OfEveryPattern(t *testing.T) {
	for i := range 1 << 16 {
		b := uint16(i)
		if got, want := math.Float32bits(half.float32(b)), math.Float32bits(x448Decode(b)); got != want {
			t.Errorf("Half(%#04x).Float32() = %#08x, x448/float16 has %#08x", b, got, want)
		}
		if got, want := math.Float32bits(bfloat.float32(b)), uint32(b)<<16; got != want {
			t.Errorf("BFloat(%#04x).Float32() = %#08x, the shift gives %#08x", b, got, want)
		}
	}
}

// IEEE 754-2019, section 3.4, taken at its word.
func TestFloat32IsTheDefinition(t *testing.T) {
	for _, f := range formats {
		for i, want := range f.lattice[:f.inf] {
			b := uint16(i)
			if got := float64(f.float32(b)); got != want {
				t.Errorf("%s %#04x decodes to %g, is %g by definition", f.name, b, got, want)
			}
			if got := float64(f.float32(b | f.sign)); got != -want || !math.Signbit(got) {
				t.Errorf("%s %#04x decodes to %g, is -%g by definition", f.name, b|f.sign, got, want)
			}
		}
	}
}

func TestPredicatesOfEveryPattern(t *testing.T) {
	for _, f := range formats {
		for i := range 1 << 16 {
			b := uint16(i)
			x := float64(f.float32(b))
			for _, sign := range []int{-1, 0, 1} {
				if got, want := f.isInf(b, sign), math.IsInf(x, sign); got != want {
					t.Errorf("%s(%#04x).IsInf(%d) = %t for %g", f.name, b, sign, got, x)
				}
			}
			if got, want := f.isNaN(b), math.IsNaN(x); got != want {
				t.Errorf("%s(%#04x).IsNaN() = %t for %g", f.name, b, got, x)
			}
			if got, want := f.isFinite(b), !math.IsNaN(x) && !math.IsInf(x, 0); got != want {
				t.Errorf("%s(%#04x).IsFinite() = %t for %g", f.name, b, got, x)
			}
		}
	}
}

func TestConstantsAreTheirDerivations(t *testing.T) {
	for _, f := range formats {
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"Max", f.max, f.lattice[f.inf-1]},
			{"Overflow", f.overflow, f.mid(int(f.inf) - 1)},
			{"SmallestNormal", f.smallestNormal, math.Ldexp(1, 1-f.maxExp)},
			{"SmallestNonzero", f.smallest, f.lattice[1]},
			{"Underflow", f.underflow, f.mid(0)},
			{"Epsilon", f.epsilon, float64(f.float32(f.fromFloat32(1)+1)) - 1},
		} {
			if c.got != c.want {
				t.Errorf("%s%s = %g, derived %g", c.name, f.name, c.got, c.want)
			}
		}
		if f.fromFloat64(f.overflow) != f.inf || f.fromFloat64(nextDown(f.overflow)) != f.inf-1 {
			t.Errorf("%s: infinity does not begin at Overflow%s", f.name, f.name)
		}
		if f.fromFloat64(f.underflow) != 0 || f.fromFloat64(nextUp(f.underflow)) != 1 {
			t.Errorf("%s: zero does not end at Underflow%s", f.name, f.name)
		}
	}
	if MaxHalf != 65504 || OverflowHalf != 65520 {
		t.Error("MaxHalf is not 65504 or OverflowHalf is not 65520")
	}
}

func TestBulkDecode(t *testing.T) {
	src := make([]byte, 1<<17)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	for _, f := range formats {
		// All patterns, then short pieces from the middle, so that a version
		// that works in blocks has its tails tested as well.
		for _, r := range [][2]int{{0, 1 << 16}, {0, 0}, {5, 6}, {0x3ff, 0x402}, {0x7bf9, 0x7c08}, {0x83e1, 0x8402}} {
			dst := make([]float32, r[1]-r[0])
			f.decode(dst, src[2*r[0]:2*r[1]])
			for i, got := range dst {
				want := f.float32(uint16(r[0] + i))
				if math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("Decode%s over %v: element %d is %g, want %g", f.name, r, i, got, want)
				}
			}
		}
	}
}

func TestBulkDecodeRefusesOtherLengths(t *testing.T) {
	for _, f := range formats {
		for _, n := range []int{0, 1, 3, 5, 6} {
			func() {
				defer func() {
					msg, _ := recover().(string)
					if !strings.HasPrefix(msg, "fp16: Decode"+f.name+": ") {
						t.Errorf("Decode%s of %d bytes into 2 values: panic %q", f.name, n, msg)
					}
				}()
				f.decode(make([]float32, 2), make([]byte, n))
			}()
		}
	}
}
