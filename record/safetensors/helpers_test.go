package safetensors

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

// rawFile returns a file with this header, whose length it fills in, and numData
// bytes of data: 0, 1, 2, …
func rawFile(header string, numData int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range numData {
		b = append(b, byte(i))
	}
	return b
}

func open(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func written(t testing.TB, entries []Entry, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, entries, metadata); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tensor(t testing.TB, f *File, name string) *Tensor {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q among %q", name, f.Names())
	}
	return x
}

// all decodes a whole tensor in one call.
func all(t testing.TB, x *Tensor) []float64 {
	t.Helper()
	dst := make([]float64, x.Len())
	if n, err := x.ReadAt(dst, 0); n != len(dst) || err != nil {
		t.Fatalf("tensor %q: ReadAt = %d, %v for %d elements", x.Name, n, err, len(dst))
	}
	return dst
}

func rawBytes(t testing.TB, x *Tensor) []byte {
	t.Helper()
	b, err := io.ReadAll(x.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// entriesOf returns what Write needs to write f again.
func entriesOf(t testing.TB, f *File) []Entry {
	t.Helper()
	var entries []Entry
	for _, name := range f.Names() {
		x := tensor(t, f, name)
		entries = append(entries, Entry{x.Name, x.DType, x.Shape, rawBytes(t, x)})
	}
	return entries
}
