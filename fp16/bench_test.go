package fp16

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// The kinds of data that conversions meet. Gradients of a model in mixed
// precision straddle 2^-14, so that no branch on "subnormal" can be predicted;
// 2^20 values are more than a branch predictor learns by heart.
var benchData = []struct {
	name string
	draw func(*rand.Rand) float32
}{
	{"unit", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }},
	{"gradient", func(r *rand.Rand) float32 { return float32(r.NormFloat64() * 0x1p-14) }},
	{"any", func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) }}, // as Half, 44 % are infinite
}

const benchLen = 1 << 20

func perElement(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/elem")
}

// go test ./fp16 -run '^$' -bench Decode
//
// The Half/…/scalar rows are DecodeHalf without its table.
func BenchmarkDecode(b *testing.B) {
	for _, f := range formats {
		for _, d := range benchData {
			r := rand.New(rand.NewPCG(1, 2))
			src := make([]byte, 2*benchLen)
			for i := range benchLen {
				binary.LittleEndian.PutUint16(src[2*i:], f.fromFloat32(d.draw(r)))
			}
			dst := make([]float32, benchLen)
			b.Run(f.name+"/"+d.name+"/bulk", func(b *testing.B) {
				for b.Loop() {
					f.decode(dst, src)
				}
				perElement(b, benchLen)
			})
			if f != half {
				continue
			}
			b.Run(f.name+"/"+d.name+"/scalar", func(b *testing.B) {
				for b.Loop() {
					for i := range dst {
						dst[i] = (Half(src[2*i]) | Half(src[2*i+1])<<8).Float32()
					}
				}
				perElement(b, benchLen)
			})
		}
	}
}

var sink uint16

// go test ./fp16 -run '^$' -bench Encode
func BenchmarkEncode(b *testing.B) {
	for _, d := range benchData {
		r := rand.New(rand.NewPCG(3, 4))
		x32, x64 := make([]float32, benchLen), make([]float64, benchLen)
		for i := range x32 {
			x32[i] = d.draw(r)
			x64[i] = float64(x32[i])
		}
		for _, v := range []struct {
			name string
			run  func()
		}{
			{"HalfFromFloat32", func() {
				for _, x := range x32 {
					sink ^= uint16(HalfFromFloat32(x))
				}
			}},
			{"x448", func() {
				for _, x := range x32 {
					sink ^= x448Encode(x)
				}
			}},
			{"HalfFromFloat64", func() {
				for _, x := range x64 {
					sink ^= uint16(HalfFromFloat64(x))
				}
			}},
			{"BFloatFromFloat32", func() {
				for _, x := range x32 {
					sink ^= uint16(BFloatFromFloat32(x))
				}
			}},
			{"BFloatFromFloat64", func() {
				for _, x := range x64 {
					sink ^= uint16(BFloatFromFloat64(x))
				}
			}},
		} {
			b.Run(d.name+"/"+v.name, func(b *testing.B) {
				for b.Loop() {
					v.run()
				}
				perElement(b, benchLen)
			})
		}
	}
}
