package safetensors

import (
	"encoding/binary"
	"math"

	"ordercheck/fp16"
)

// F16 returns an entry of binary16 elements. As with the other functions of
// this file, [Write] checks that shape and elements agree.
func F16(name string, shape []int, elems []fp16.Half) Entry {
	data := make([]byte, 0, 2*len(elems))
	for _, v := range elems {
		data = binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	return Entry{name, Float16, shape, data}
}

// BF16 returns an entry of bfloat16 elements.
func BF16(name string, shape []int, elems []fp16.BFloat) Entry {
	data := make([]byte, 0, 2*len(elems))
	for _, v := range elems {
		data = binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	return Entry{name, BFloat16, shape, data}
}

// F32 returns an entry of float32 elements.
func F32(name string, shape []int, elems []float32) Entry {
	data := make([]byte, 0, 4*len(elems))
	for _, v := range elems {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return Entry{name, Float32, shape, data}
}

// F64 returns an entry of float64 elements.
func F64(name string, shape []int, elems []float64) Entry {
	data := make([]byte, 0, 8*len(elems))
	for _, v := range elems {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	return Entry{name, Float64, shape, data}
}

// I64 returns an entry of int64 elements.
func I64(name string, shape []int, elems []int64) Entry {
	data := make([]byte, 0, 8*len(elems))
	for _, v := range elems {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return Entry{name, Int64, shape, data}
}
