package safetensors

import (
	"encoding/binary"
	"math"

	"ordercheck/fp16"
)

// Each of these sets dst[i] to the i-th little-endian element of src, which
// holds len(dst) elements.

func decodeUint8(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(src[i])
	}
}

func decodeInt8(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(int8(src[i]))
	}
}

func decodeUint16(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeInt16(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(int16(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

func decodeFloat16(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(fp16.Half(binary.LittleEndian.Uint16(src[2*i:])).Float32())
	}
}

func decodeBFloat16(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(fp16.BFloat(binary.LittleEndian.Uint16(src[2*i:])).Float32())
	}
}

func decodeUint32(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeInt32(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(int32(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func decodeFloat32(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func decodeUint64(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(binary.LittleEndian.Uint64(src[8*i:]))
	}
}

func decodeInt64(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = float64(int64(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeFloat64(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
	}
}
