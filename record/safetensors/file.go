package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// File is an open safetensors file. Its methods may be called concurrently.
type File struct {
	tensors  map[string]*Tensor
	names    []string // sorted
	metadata map[string]string
}

// Open reads and checks the header of the file that r holds in its first size
// bytes. It reads no tensor. r must stay open, and its bytes the same, while
// tensors are read.
func Open(r io.ReaderAt, size int64) (*File, error) {
	text, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	entries, metadata, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	dataStart := lengthBytes + int64(len(text))
	lens, err := checkLayout(entries, dataStart, size)
	if err != nil {
		return nil, err
	}
	f := &File{tensors: make(map[string]*Tensor, len(entries)), metadata: metadata}
	for i, e := range entries {
		f.tensors[e.name] = &Tensor{
			Name: e.name, DType: e.dtype, Shape: e.shape,
			r: r, start: dataStart + e.begin, size: e.end - e.begin, numElems: lens[i],
		}
	}
	f.names = slices.Sorted(maps.Keys(f.tensors))
	return f, nil
}

// readHeader returns the JSON text of the header.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < lengthBytes {
		return nil, faultAt(0, fixCutShort, "the file has %d bytes, but the header's length alone takes %d", max(0, size), lengthBytes)
	}
	var length [lengthBytes]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, fmt.Errorf("safetensors: byte 0: cannot read the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, faultAt(0, fixNotOurs, "the header's length is given as %d, more than the limit of %d", n, maxHeader)
	}
	if int64(n) > size-lengthBytes {
		return nil, faultAt(0, fixCutShort, "the header's length is given as %d, but only %d bytes follow", n, size-lengthBytes)
	}
	// ReadAll grows its buffer with what it has read: were size wrong as well,
	// n would still not be believed.
	text, err := io.ReadAll(io.NewSectionReader(r, lengthBytes, int64(n)))
	if err == nil && uint64(len(text)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("safetensors: byte %d: cannot read the header of %d bytes: %w", lengthBytes+len(text), n, err)
	}
	return text, nil
}

// readFull reads len(buf) bytes at off. The end of the file before that is
// io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, buf []byte, off int64) error {
	n, err := r.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Names returns the names of the tensors, sorted.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Tensor returns the tensor of that name, and whether there is one.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata returns the header's __metadata__, an empty map if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }
