package fp16

import (
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
)

// TestEveryFloat32 converts all 2^32 float32 to both formats: Half must equal
// x448/float16, both must equal the twin, and where the operand is a number
// the conversion from float64 must agree.
func TestEveryFloat32(t *testing.T) {
	if os.Getenv("ORDERCHECK_LONG") != "1" {
		t.Skip("all 2^32 float32 take minutes; set ORDERCHECK_LONG=1 to convert them")
	}
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			const blocks = 1 << 8 // of 2^23 magnitudes
			next := make(chan uint32, blocks)
			for i := range uint32(blocks) {
				next <- i << 23
			}
			close(next)
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					for from := range next {
						if f.checkBlock(t, from, from+1<<23) {
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// checkBlock checks the operands of either sign with magnitudes from … to-1,
// and reports whether it found a fault. Magnitudes rise with their encodings,
// so the search of the twin becomes a walk: the result moves up by one
// encoding when the operand passes a point half way.
func (f *format) checkBlock(t *testing.T, from, to uint32) bool {
	at := f.nearest(float64(math.Float32frombits(from)))
	for a := from; a < to; a++ {
		x := math.Float32frombits(a)
		var want uint16
		if math.IsNaN(float64(x)) {
			want = f.nearest(widen(x))
		} else {
			for at < f.inf && (float64(x) > f.mid(int(at)) || float64(x) == f.mid(int(at)) && at%2 == 1) {
				at++
			}
			want = at
		}
		for _, sign := range []uint32{0, 1} {
			x := math.Float32frombits(sign<<31 | a)
			want := want | uint16(sign<<15)
			got32, got64 := f.fromFloat32(x), f.fromFloat64(widen(x))
			if got32 != want || got64 != want {
				t.Errorf("%s of float32 %#08x: %#04x, by way of float64 %#04x, want %#04x", f.name, sign<<31|a, got32, got64, want)
				return true
			}
			if f == half && x448Encode(x) != want {
				t.Errorf("x448/float16 of float32 %#08x: %#04x, want %#04x", sign<<31|a, x448Encode(x), want)
				return true
			}
		}
	}
	return false
}
