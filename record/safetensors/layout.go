package safetensors

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// checkLayout checks the entries of a file whose data are the bytes dataStart …
// size-1, sorts them by place, and returns the number of elements of each.
func checkLayout(entries []entry, dataStart, size int64) (lens []int, err error) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	lens = make([]int, len(entries))
	for i, e := range entries {
		if lens[i], err = checkEntry(e, dataStart, size); err != nil {
			return nil, err
		}
	}
	return lens, checkCover(entries, dataStart, size)
}

// checkEntry checks one entry by itself: its bytes are in the file, and as many
// as dtype and shape need.
func checkEntry(e entry, dataStart, size int64) (numElems int, err error) {
	if e.begin > e.end {
		return 0, faultIn(e.name, fixWriter, "data_offsets [%d, %d] end before they begin", e.begin, e.end)
	}
	numElems, ok := product(e.shape)
	if !ok {
		return 0, faultIn(e.name, fixWriter, "shape %s has more than %d elements", shapeString(e.shape), math.MaxInt)
	}
	if width := e.dtype.Bits(); width > 0 {
		need, whole := byteSize(numElems, width)
		if !whole {
			return 0, faultIn(e.name, fixWriter, "%s %s ends inside a byte: elements of %d bits must fill whole bytes",
				e.dtype.label(), shapeString(e.shape), width)
		}
		if need != uint64(e.end-e.begin) {
			return 0, faultIn(e.name, fixCutShort, "data_offsets [%d, %d] hold %d bytes but %s %s needs %s",
				e.begin, e.end, e.end-e.begin, e.dtype.label(), shapeString(e.shape), bytesString(need))
		}
	}
	// e.end is not added to dataStart: the sum might overflow.
	if dataLen := size - dataStart; e.end > dataLen {
		return 0, faultIn(e.name, fixCutShort, "data_offsets [%d, %d] end %d bytes past the end of the file, whose data are the %d bytes from byte %d",
			e.begin, e.end, e.end-dataLen, dataLen, dataStart)
	}
	return numElems, nil
}

// checkCover checks that entries, in order of place and each inside the file,
// cover the data without overlap, gap or rest.
func checkCover(entries []entry, dataStart, size int64) error {
	var end int64
	for i, e := range entries {
		if e.begin < end {
			return faultIn(e.name, fixWriter, "it begins at byte %d of the file, inside tensor %s, which ends at byte %d",
				dataStart+e.begin, quote(entries[i-1].name), dataStart+end)
		}
		if e.begin > end {
			return faultAt(dataStart+end, fixWriter, "%d bytes before tensor %s belong to no tensor", e.begin-end, quote(e.name))
		}
		end = e.end
	}
	if rest := size - dataStart - end; rest > 0 {
		return faultAt(dataStart+end, fixWriter, "%d bytes after the last tensor belong to no tensor", rest)
	}
	return nil
}

// product returns the number of elements of a shape, 1 for a scalar. It
// reports false if the product of the dimensions that are not zero overflows:
// then so would other products over the shape, whatever is multiplied first.
func product(shape []int) (n int, ok bool) {
	n = 1
	zero := false
	for _, d := range shape {
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		n = int(lo)
	}
	if zero {
		return 0, true
	}
	return n, true
}

// byteSize returns the number of bytes that numElems elements of width bits
// take, and whether they end at the end of a byte. A number too large for
// uint64, which no file can hold, is returned as the largest one.
func byteSize(numElems, width int) (n uint64, whole bool) {
	hi, lo := bits.Mul64(uint64(numElems), uint64(width))
	if hi >= 8 {
		return math.MaxUint64, true
	}
	return hi<<61 | lo>>3, lo%8 == 0
}

func bytesString(n uint64) string {
	if n == math.MaxUint64 {
		return "more than any file can hold"
	}
	return fmt.Sprint(n)
}
