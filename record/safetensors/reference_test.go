package safetensors

import (
	"bytes"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// testdata/reference.safetensors was written by the reference library; see
// testdata/reference.py.
func readReference(t testing.TB) []byte {
	b, err := os.ReadFile("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadsWhatTheReferenceLibraryWrote(t *testing.T) {
	f := open(t, readReference(t))
	inf := math.Inf(1)
	for _, want := range []struct {
		name  string
		dtype DType
		shape []int
		elems []float64 // nil: not decodable
	}{
		{"half", Float16, []int{2, 4}, []float64{0, math.Copysign(0, -1), 1, -2.5, 65504, inf, -inf, 0x1p-24}},
		{"brain", BFloat16, []int{2}, []float64{1, -123.5}},
		{"single", Float32, []int{2, 2}, []float64{float64(float32(1. / 3)), 0x1p-149, float64(float32(3.4e38)), -1}},
		{"double", Float64, []int{3}, []float64{math.Pi, 0x1p-1074, -1e300}},
		{"i8", Int8, []int{3}, []float64{-128, 0, 127}},
		{"u8", Uint8, []int{3}, []float64{0, 128, 255}},
		{"i16", Int16, []int{2}, []float64{-1 << 15, 1<<15 - 1}},
		{"u16", Uint16, []int{1}, []float64{1<<16 - 1}},
		{"i32", Int32, []int{2}, []float64{-1 << 31, 1<<31 - 1}},
		{"u32", Uint32, []int{1}, []float64{1<<32 - 1}},
		{"i64", Int64, []int{2}, []float64{-1 << 53, 1 << 53}},
		{"u64", Uint64, []int{1}, []float64{1 << 53}},
		{"bool", Bool, []int{4}, []float64{1, 0, 0, 1}},
		{"scalar", Float32, []int{}, []float64{7}},
		{"empty", Float32, []int{0, 5}, []float64{}},
		{"naïve \"name\"/\\\n\t\x01<&>", Uint8, []int{1}, []float64{42}},
		{"float8_e4m3fn", "F8_E4M3", []int{3}, nil},
		{"float8_e5m2", "F8_E5M2", []int{3}, nil},
		{"float8_e8m0fnu", "F8_E8M0", []int{3}, nil},
		{"float8_e4m3fnuz", "F8_E4M3FNUZ", []int{3}, nil},
		{"float8_e5m2fnuz", "F8_E5M2FNUZ", []int{3}, nil},
		{"complex64", "C64", []int{1}, nil},
		{"float4_e2m1fn_x2", "F4", []int{2}, nil},
	} {
		x := tensor(t, f, want.name)
		if x.Name != want.name || x.DType != want.dtype || !slices.Equal(x.Shape, want.shape) {
			t.Errorf("%q: %q %s %v, want %s %v", want.name, x.Name, x.DType, x.Shape, want.dtype, want.shape)
		}
		if x.DType.Decodable() != (want.elems != nil) {
			t.Errorf("%q: %s decodable: %t", want.name, x.DType, x.DType.Decodable())
			continue
		}
		if want.elems == nil {
			continue
		}
		got := all(t, x)
		sameBits := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
		if !slices.EqualFunc(got, want.elems, sameBits) {
			t.Errorf("%q: elements %v, want %v", want.name, got, want.elems)
		}
	}
	if n := len(f.Names()); n != 23 || !slices.IsSorted(f.Names()) {
		t.Errorf("%d names, want 23, sorted: %q", n, f.Names())
	}
	if m := f.Metadata(); len(m) != 1 || m["note"] != `größer "<" \` {
		t.Errorf("metadata %q", m)
	}
}

// Writing again what the reference library wrote gives the same bytes,
// whatever the order of the entries.
func TestWritesAsTheReferenceLibraryDoes(t *testing.T) {
	want := readReference(t)
	f := open(t, want)
	entries := entriesOf(t, f)
	for range 2 {
		if got := written(t, entries, f.Metadata()); !bytes.Equal(got, want) {
			t.Errorf("wrote\n%q\nwant\n%q", got, want)
		}
		slices.Reverse(entries)
	}
}

// The snapshots in the zoo of recorded loops, where there is one: all open, all
// decode, and written again they are the same files.
func TestZoo(t *testing.T) {
	dir := os.Getenv("ORDERCHECK_ZOO")
	for _, d := range []string{"../../shared/zoo", "../../../shared/zoo"} {
		if _, err := os.Stat(d); dir == "" && err == nil {
			dir = d
		}
	}
	if dir == "" {
		t.Skip("no zoo of recordings beside this checkout; set ORDERCHECK_ZOO to its folder to read it")
	}
	files, tensors, elems := 0, 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".safetensors" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		files++
		for _, name := range f.Names() {
			x := tensor(t, f, name)
			tensors++
			elems += len(all(t, x))
			if n, err := x.ReadAt(make([]float64, 1), x.Len()); n != 0 || err != io.EOF {
				t.Errorf("%s: %s: ReadAt past the end = %d, %v", path, name, n, err)
			}
		}
		if got := written(t, entriesOf(t, f), f.Metadata()); !bytes.Equal(got, b) {
			t.Errorf("%s: written again it differs", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Errorf("%s holds no .safetensors file", dir)
	}
	t.Logf("%d files, %d tensors, %d elements", files, tensors, elems)
}
