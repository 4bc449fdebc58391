package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"ordercheck/fp16"
)

func TestReadAtAnyPlace(t *testing.T) {
	elems := make([]float64, 20_000) // 160 000 bytes: several blocks
	for i := range elems {
		elems[i] = float64(i) + 0.5
	}
	x := tensor(t, open(t, written(t, []Entry{F64("a", []int{100, 200}, elems)}, nil)), "a")
	for _, c := range []struct {
		off, len, n int
		err         error
	}{
		{0, 0, 0, nil}, {0, 1, 1, nil}, {7, 5, 5, nil},
		{0, 4096, 4096, nil}, {1, 4096, 4096, nil}, {4095, 4098, 4098, nil},
		{0, 20_000, 20_000, nil}, {0, 20_001, 20_000, io.EOF},
		{19_999, 1, 1, nil}, {19_999, 2, 1, io.EOF},
		{20_000, 0, 0, nil}, {20_000, 1, 0, io.EOF}, {20_001, 1, 0, io.EOF}, {math.MaxInt, 3, 0, io.EOF},
	} {
		dst := make([]float64, c.len)
		n, err := x.ReadAt(dst, c.off)
		if n != c.n || err != c.err {
			t.Errorf("ReadAt(%d elements, %d) = %d, %v, want %d, %v", c.len, c.off, n, err, c.n, c.err)
			continue
		}
		if n > 0 && !slices.Equal(dst[:n], elems[c.off:c.off+n]) {
			t.Errorf("ReadAt(%d elements, %d) gave other elements", c.len, c.off)
		}
		for _, v := range dst[n:] {
			if v != 0 {
				t.Fatalf("ReadAt(%d elements, %d) wrote past the elements that it read", c.len, c.off)
			}
		}
	}
	if _, err := x.ReadAt(make([]float64, 1), -1); err == nil || err == io.EOF {
		t.Errorf("ReadAt(-1): %v", err)
	}
}

// Every 16-bit pattern of either format gives the number that fp16 says it is.
func TestReadAt16BitFormats(t *testing.T) {
	halves, bfloats := make([]fp16.Half, 1<<16), make([]fp16.BFloat, 1<<16)
	for i := range halves {
		halves[i], bfloats[i] = fp16.Half(i), fp16.BFloat(i)
	}
	f := open(t, written(t, []Entry{F16("h", []int{1 << 16}, halves), BF16("b", []int{256, 256}, bfloats)}, nil))
	h, b := all(t, tensor(t, f, "h")), all(t, tensor(t, f, "b"))
	same := func(a, b float64) bool { return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b }
	for i := range halves {
		if want := float64(halves[i].Float32()); !same(h[i], want) {
			t.Fatalf("F16 %#04x read as %g, want %g", i, h[i], want)
		}
		if want := float64(bfloats[i].Float32()); !same(b[i], want) {
			t.Fatalf("BF16 %#04x read as %g, want %g", i, b[i], want)
		}
	}
}

// Integers that no float64 holds are rounded to the nearest one, ties to even.
func TestReadAtRoundsLargeIntegers(t *testing.T) {
	u64 := func(v ...uint64) Entry {
		var data []byte
		for _, n := range v {
			data = binary.LittleEndian.AppendUint64(data, n)
		}
		return Entry{"u", Uint64, []int{len(v)}, data}
	}
	f := open(t, written(t, []Entry{
		I64("i", []int{4}, []int64{1<<53 + 1, 1<<53 + 3, math.MinInt64, math.MaxInt64}),
		u64(1<<53+1, 1<<63, 1<<64-1),
	}, nil))
	if got, want := all(t, tensor(t, f, "i")), []float64{1 << 53, 1<<53 + 4, -1 << 63, 1 << 63}; !slices.Equal(got, want) {
		t.Errorf("I64: %v, want %v", got, want)
	}
	if got, want := all(t, tensor(t, f, "u")), []float64{1 << 53, 1 << 63, 1 << 64}; !slices.Equal(got, want) {
		t.Errorf("U64: %v, want %v", got, want)
	}
}

func TestReadAtRefusesWhatItCannotDecode(t *testing.T) {
	f := open(t, rawFile(`{"q":{"dtype":"Q4\n","shape":[32],"data_offsets":[0,18]},"p":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[18,20]},
		"b":{"dtype":"BOOL","shape":[5],"data_offsets":[20,25]}}`, 25))
	for name, want := range map[string]string{
		"q": `safetensors: tensor "q": dtype "Q4\n" cannot be decoded; read it with Bytes, or convert the tensor before it is recorded`,
		"p": `safetensors: tensor "p": dtype F8_E5M2 cannot be decoded; read it with Bytes, or convert the tensor before it is recorded`,
		"b": `safetensors: tensor "b": element 0, byte 203 of the file, is 20, but a BOOL is 0 or 1` + writer,
	} {
		if n, err := tensor(t, f, name).ReadAt(make([]float64, 2), 0); n != 0 || err == nil || err.Error() != want {
			t.Errorf("%q: %d, %v\nwant %s", name, n, err, want)
		}
	}
	if got := rawBytes(t, tensor(t, f, "q")); len(got) != 18 || got[17] != 17 {
		t.Errorf("bytes of a tensor of unknown type: %v", got)
	}
	// Elements before the bad one count.
	b := rawFile(`{"b":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}`, 4)
	if n, err := tensor(t, open(t, b), "b").ReadAt(make([]float64, 4), 0); n != 2 || err == nil {
		t.Errorf("BOOL 0 1 2 3: ReadAt = %d, %v", n, err)
	}
}

func TestReadAtReportsWhatReadingReports(t *testing.T) {
	b := written(t, []Entry{F32("a", []int{3, 4000}, make([]float32, 12_000))}, nil)
	disk := errors.New("disk on fire")
	for _, c := range []struct {
		r    io.ReaderAt
		want error
	}{
		{failingAt{bytes.NewReader(b), int64(len(b) - 1), disk}, disk},
		{bytes.NewReader(b[:len(b)-1]), io.ErrUnexpectedEOF}, // cut after it was opened
	} {
		f, err := Open(c.r, int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := tensor(t, f, "a").ReadAt(make([]float64, 12_000), 0)
		if n != 8192 || !errors.Is(err, c.want) || !strings.Contains(err.Error(), `tensor "a": cannot read 15232 bytes at byte 32840 `) {
			t.Errorf("got %d, %v; want the first block, then %v", n, err, c.want)
		}
	}
}

func TestResultsAreCopies(t *testing.T) {
	f := open(t, readReference(t))
	f.Names()[0] = "changed"
	f.Metadata()["note"] = "changed"
	if f.Names()[0] == "changed" || f.Metadata()["note"] == "changed" {
		t.Error("a caller changed the file")
	}
	if x, ok := f.Tensor("no such tensor"); x != nil || ok {
		t.Errorf("Tensor of an unknown name = %v, %t", x, ok)
	}
}

func TestConcurrentReads(t *testing.T) {
	elems := make([]float32, 30_000)
	for i := range elems {
		elems[i] = float32(i)
	}
	x := tensor(t, open(t, written(t, []Entry{F32("a", []int{len(elems)}, elems)}, nil)), "a")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			dst := make([]float64, 10_000)
			for round := range 20 {
				off := (g*3000 + round*501) % 20_000
				if _, err := x.ReadAt(dst, off); err != nil || dst[0] != float64(off) || dst[9999] != float64(off+9999) {
					t.Errorf("at %d: %v, %v, %v", off, dst[0], dst[9999], err)
				}
			}
		})
	}
	wg.Wait()
}

// sparse is a file of 8 GiB of which only the header and a few bytes at the end
// are not zero; it counts what is read of it.
type sparse struct {
	head []byte
	size int64
	tail []byte
	read *int64
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), s.size-off))
	*s.read += int64(n)
	clear(p[:n])
	if off < int64(len(s.head)) {
		copy(p, s.head[off:])
	}
	if at := s.size - int64(len(s.tail)); off+int64(n) > at {
		copy(p[max(0, at-off):n], s.tail[max(0, off-at):])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func TestReadsNoMoreThanAsked(t *testing.T) {
	const numElems = 1 << 31
	size := int64(4 * numElems)
	head := rawFile(fmt.Sprintf(`{"big":{"dtype":"F32","shape":[2,%d],"data_offsets":[0,%d]}}`, numElems/2, size), 0)
	size += int64(len(head))
	var read int64
	f, err := Open(sparse{head, size, binary.LittleEndian.AppendUint32(nil, math.Float32bits(42)), &read}, size)
	if err != nil {
		t.Fatal(err)
	}
	if read != int64(len(head)) {
		t.Errorf("Open read %d bytes of 8 GiB, the header has %d", read, len(head))
	}
	x := tensor(t, f, "big")
	if x.Len() != numElems || x.Bytes().Size() != 4*numElems {
		t.Fatalf("%d elements, %d bytes", x.Len(), x.Bytes().Size())
	}
	read = 0
	dst := make([]float64, 1000)
	for _, c := range []struct {
		off, n int
		last   float64
	}{{0, 1000, 0}, {numElems / 2, 1000, 0}, {numElems - 1000, 1000, 42}, {numElems - 1, 1, 42}} {
		n, err := x.ReadAt(dst, c.off)
		if n != c.n || (err == io.EOF) != (n < len(dst)) || dst[n-1] != c.last {
			t.Errorf("at %d: %d elements, last %v, %v", c.off, n, dst[n-1], err)
		}
	}
	if want := int64(4 * 3001); read != want {
		t.Errorf("read %d bytes for 3001 elements, want %d", read, want)
	}
	if allocs := testing.AllocsPerRun(100, func() { x.ReadAt(dst, 12345) }); allocs > 0 {
		t.Errorf("ReadAt allocates %v times", allocs)
	}
}
