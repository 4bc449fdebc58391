package safetensors

import (
	"fmt"
	"io"
	"sync"
)

// Tensor is one tensor of a file. Name, DType and Shape are as in the header and
// not to be changed; a scalar has an empty Shape and one element.
type Tensor struct {
	Name  string
	DType DType
	Shape []int

	r           io.ReaderAt
	start, size int64 // the tensor's bytes in the file
	numElems    int
}

// Len returns the number of elements, the product of Shape.
func (t *Tensor) Len() int { return t.numElems }

// Bytes returns a reader of the tensor's bytes as they are in the file.
func (t *Tensor) Bytes() *io.SectionReader {
	return io.NewSectionReader(t.r, t.start, t.size)
}

// block is the buffer through which ReadAt decodes; all widths divide its size.
type block [32 << 10]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// ReadAt sets dst[i] to element off+i, in row-major order, and returns how many
// it set. Where the tensor ends before dst does, the error is io.EOF.
//
// F16, BF16, F32, F64 and integers of up to 32 bits are exact, and so are I64
// and U64 up to 2^53 in magnitude; beyond that they are rounded to the nearest
// float64. BOOL gives 0 or 1, and is an error where the byte is neither. Types
// that are not [DType.Decodable] are an error.
//
// ReadAt reads the file anew at each call, in pieces of 32 KiB. It may be called
// concurrently.
func (t *Tensor) ReadAt(dst []float64, off int) (int, error) {
	info := t.DType.info()
	if info.decode == nil {
		return 0, faultIn(t.Name, "read it with Bytes, or convert the tensor before it is recorded",
			"dtype %s cannot be decoded", t.DType.label())
	}
	if off < 0 {
		return 0, fmt.Errorf("safetensors: tensor %s: ReadAt at element %d: the first is element 0", quote(t.Name), off)
	}
	n := max(0, min(len(dst), t.numElems-off))
	width := info.bits / 8
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	for done := 0; done < n; {
		k := min(n-done, len(buf)/width)
		at := t.start + int64(off+done)*int64(width)
		if err := readFull(t.r, buf[:k*width], at); err != nil {
			return done, fmt.Errorf("safetensors: tensor %s: cannot read %d bytes at byte %d of the file, which had them when it was opened: %w",
				quote(t.Name), k*width, at, err)
		}
		piece := dst[done : done+k]
		info.decode(piece, buf[:])
		if t.DType == Bool {
			if i := notBool(piece); i >= 0 {
				return done + i, faultIn(t.Name, fixWriter, "element %d, byte %d of the file, is %v, but a BOOL is 0 or 1",
					off+done+i, at+int64(i), piece[i])
			}
		}
		done += k
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// notBool returns the index of the first element that is neither 0 nor 1, -1 if there is none.
func notBool(elems []float64) int {
	for i, v := range elems {
		if v > 1 {
			return i
		}
	}
	return -1
}
