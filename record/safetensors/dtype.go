package safetensors

import (
	"slices"
	"strings"
)

// DType names the type of a tensor's elements, as the header spells it. A
// header may hold names that are not listed here.
type DType string

// The types that ReadAt decodes.
const (
	Bool     DType = "BOOL" // one byte, 0 or 1
	Uint8    DType = "U8"
	Int8     DType = "I8"
	Int16    DType = "I16"
	Uint16   DType = "U16"
	Float16  DType = "F16"
	BFloat16 DType = "BF16"
	Int32    DType = "I32"
	Uint32   DType = "U32"
	Float32  DType = "F32"
	Float64  DType = "F64"
	Int64    DType = "I64"
	Uint64   DType = "U64"
)

type dtypeInfo struct {
	name   DType
	bits   int
	decode func(dst []float64, src []byte) // nil if not decodable
}

// dtypes stand in the order of the reference library's Dtype, which is that of
// rising alignment: Write puts the tensors of the last one first.
var dtypes = []dtypeInfo{
	{Bool, 8, decodeUint8},
	{"F4", 4, nil},
	{"F6_E2M3", 6, nil},
	{"F6_E3M2", 6, nil},
	{Uint8, 8, decodeUint8},
	{Int8, 8, decodeInt8},
	{"F8_E5M2", 8, nil},
	{"F8_E4M3", 8, nil},
	{"F8_E8M0", 8, nil},
	{"F8_E4M3FNUZ", 8, nil},
	{"F8_E5M2FNUZ", 8, nil},
	{Int16, 16, decodeInt16},
	{Uint16, 16, decodeUint16},
	{Float16, 16, decodeFloat16},
	{BFloat16, 16, decodeBFloat16},
	{Int32, 32, decodeInt32},
	{Uint32, 32, decodeUint32},
	{Float32, 32, decodeFloat32},
	{"C64", 64, nil},
	{Float64, 64, decodeFloat64},
	{Int64, 64, decodeInt64},
	{Uint64, 64, decodeUint64},
}

// rank returns d's place in dtypes, -1 if it has none.
func (d DType) rank() int {
	return slices.IndexFunc(dtypes, func(t dtypeInfo) bool { return t.name == d })
}

// info returns what is known about d. All names that begin with F8_ are taken
// to be 8 bits wide; bits is 0 for other names that are not listed.
func (d DType) info() dtypeInfo {
	if r := d.rank(); r >= 0 {
		return dtypes[r]
	}
	if strings.HasPrefix(string(d), "F8_") {
		return dtypeInfo{name: d, bits: 8}
	}
	return dtypeInfo{name: d}
}

// label is d for a message: as it is if it is known, else quoted.
func (d DType) label() string {
	if d.rank() >= 0 {
		return string(d)
	}
	return quote(string(d))
}

// Bits returns the width of an element, 0 if the type is not known.
func (d DType) Bits() int { return d.info().bits }

// Decodable reports whether ReadAt can turn elements of the type into float64.
func (d DType) Decodable() bool { return d.info().decode != nil }
