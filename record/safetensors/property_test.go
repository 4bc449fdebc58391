package safetensors

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// entries generates what Write accepts: any names, types of known width, shapes
// with zeros and ones among them, and any bytes.
var entries = rapid.Custom(func(t *rapid.T) []Entry {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "grad/0.weight", "\x00", "\"\\/\n", "é", "日本", "\u2028", "__metadata"}))
	names := rapid.SliceOfNDistinct(name, 0, 6, rapid.ID[string]).Draw(t, "names")
	var list []Entry
	for _, name := range names {
		if name == metadataKey {
			continue
		}
		e := Entry{Name: name, DType: rapid.SampledFrom(dtypes).Draw(t, "dtype").name}
		e.Shape = rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 7, 8}), 0, 4).Draw(t, "shape")
		if e.DType.Bits()%8 != 0 {
			e.Shape = append(e.Shape, 4) // fills whole bytes
		}
		numElems, _ := product(e.Shape)
		n := numElems * e.DType.Bits() / 8
		e.Data = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
		list = append(list, e)
	}
	return list
})

func TestPropertyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := entries.Draw(t, "entries")
		metadata := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		var b bytes.Buffer
		if err := Write(&b, list, metadata); err != nil {
			t.Fatal(err)
		}
		f, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(f.Metadata(), metadata) {
			t.Fatalf("metadata %q, wrote %q", f.Metadata(), metadata)
		}
		if len(f.Names()) != len(list) {
			t.Fatalf("tensors %q, wrote %d", f.Names(), len(list))
		}
		for _, e := range list {
			x, ok := f.Tensor(e.Name)
			if !ok {
				t.Fatalf("no tensor %q among %q", e.Name, f.Names())
			}
			data, err := io.ReadAll(x.Bytes())
			if x.Name != e.Name || x.DType != e.DType || !slices.Equal(x.Shape, e.Shape) || !bytes.Equal(data, e.Data) || err != nil {
				t.Fatalf("read %+v with bytes %x, %v; wrote %+v", x, data, err, e)
			}
			// Elements lie where the format says: each decodes as the whole does.
			if x.DType.Decodable() && x.DType != Bool {
				whole := make([]float64, x.Len())
				x.DType.info().decode(whole, data)
				i := rapid.IntRange(0, x.Len()).Draw(t, "element")
				one := make([]float64, 1)
				n, err := x.ReadAt(one, i)
				if (n == 1) != (i < x.Len()) || n == 1 && (err != nil || one[0] != whole[i] && one[0] == one[0]) {
					t.Fatalf("%s element %d of %d: %d, %v, %v", x.DType, i, x.Len(), n, one, err)
				}
			}
		}
	})
}

// A file whose bytes are not exactly those that were written is refused or
// still holds together; it never makes Open panic.
func TestPropertyDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buf bytes.Buffer
		if err := Write(&buf, entries.Draw(t, "entries"), nil); err != nil {
			t.Fatal(err)
		}
		b := buf.Bytes()
		whole := len(b)
		switch rapid.SampledFrom([]string{"cut", "extend", "flip"}).Draw(t, "damage") {
		case "cut":
			b = b[:rapid.IntRange(0, whole-1).Draw(t, "length")]
		case "extend":
			b = append(b, rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "more")...)
		case "flip":
			b[rapid.IntRange(0, whole-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err == nil && len(b) != whole {
			t.Fatalf("%d bytes of %d make a file with tensors %q", len(b), whole, f.Names())
		}
		if err == nil {
			mustHold(t, f, len(b))
		}
	})
}

// mustHold checks what Open promises of every file that it accepts.
func mustHold(t interface{ Fatalf(string, ...any) }, f *File, fileSize int) {
	total := int64(0)
	for _, name := range f.Names() {
		x, ok := f.Tensor(name)
		if !ok || x.Name != name {
			t.Fatalf("Names has %q, Tensor has not", name)
		}
		n := x.Bytes().Size()
		total += n
		if read, err := io.Copy(io.Discard, x.Bytes()); read != n || err != nil {
			t.Fatalf("tensor %q: %d of %d bytes, %v", name, read, n, err)
		}
		dst := make([]float64, 3)
		for _, off := range []int{0, x.Len() / 2, x.Len() - 1, x.Len()} {
			if off < 0 {
				continue
			}
			got, err := x.ReadAt(dst, off)
			switch {
			case !x.DType.Decodable():
				if got != 0 || err == nil || err == io.EOF {
					t.Fatalf("tensor %q of dtype %q: ReadAt = %d, %v", name, x.DType, got, err)
				}
			case err == nil || err == io.EOF:
				if want := min(len(dst), x.Len()-off); got != want || (err == io.EOF) != (got < len(dst)) {
					t.Fatalf("tensor %q: ReadAt(%d) = %d, %v with %d elements", name, off, got, err, x.Len())
				}
			case x.DType != Bool:
				t.Fatalf("tensor %q: ReadAt(%d): %v", name, off, err)
			}
		}
	}
	if total > int64(fileSize)-10 { // the length and at least {}
		t.Fatalf("tensors of %d bytes in a file of %d", total, fileSize)
	}
}
