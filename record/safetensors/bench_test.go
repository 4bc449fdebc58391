package safetensors

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// go test ./record/safetensors -run '^$' -bench .
func BenchmarkReadAt(b *testing.B) {
	const numElems = 1 << 20
	for _, d := range []DType{Float16, BFloat16, Float32, Float64, Int64, Uint8} {
		b.Run(string(d), func(b *testing.B) {
			data := bytes.Repeat([]byte{1, 2, 3, 60, 5, 6, 7, 60}, numElems*d.Bits()/64)
			x := tensor(b, open(b, written(b, []Entry{{"a", d, []int{numElems}, data}}, nil)), "a")
			dst := make([]float64, numElems)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := x.ReadAt(dst, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/numElems, "ns/elem")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{12, 1000} {
		b.Run(fmt.Sprintf("tensors=%d", n), func(b *testing.B) {
			var entries []Entry
			for i := range n {
				entries = append(entries, F32(fmt.Sprintf("exp_avg_sq/layers.%d.attention.weight", i), []int{1, 1}, []float32{1}))
			}
			file := written(b, slices.Clone(entries), nil)
			b.ReportAllocs()
			for b.Loop() {
				open(b, file)
			}
		})
	}
}
