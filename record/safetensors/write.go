package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// Entry is a tensor to be written. Data holds its elements in row-major order,
// little-endian. A scalar has an empty Shape.
type Entry struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}

// Write writes a file with these tensors and this metadata (none if it is
// empty). The bytes depend on the content alone, not on the order of the
// entries: wider types come first, so that elements are aligned, and within a
// type names are sorted. That, and the spaces that make the header a multiple of
// 8 bytes, is what the reference library does; the files are the same.
//
// Write checks everything before it writes anything.
func Write(w io.Writer, tensors []Entry, metadata map[string]string) error {
	sorted := slices.SortedFunc(slices.Values(tensors), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.DType.rank(), a.DType.rank()), cmp.Compare(a.Name, b.Name))
	})
	if err := checkEntries(sorted, metadata); err != nil {
		return err
	}
	head, err := header(sorted, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("safetensors: cannot write the header: %w", err)
	}
	for _, e := range sorted {
		if _, err := w.Write(e.Data); err != nil {
			return fmt.Errorf("safetensors: cannot write tensor %s: %w", quote(e.Name), err)
		}
	}
	return nil
}

// checkEntries refuses what Open would refuse, and types of unknown width.
func checkEntries(entries []Entry, metadata map[string]string) error {
	seen := map[string]bool{}
	for _, e := range entries {
		size, sizeOK := product(e.Shape)
		need, whole := byteSize(size, e.DType.Bits())
		var fault string
		switch {
		case e.Name == metadataKey:
			fault = "the format keeps this name for itself"
		case !utf8.ValidString(e.Name):
			fault = "the name is not UTF-8"
		case seen[e.Name]:
			fault = "the name is used twice"
		case e.DType.Bits() == 0:
			fault = fmt.Sprintf("dtype %s is not known", e.DType.label())
		case slices.ContainsFunc(e.Shape, func(d int) bool { return d < 0 }):
			fault = fmt.Sprintf("shape %s has a negative dimension", shapeString(e.Shape))
		case !sizeOK:
			fault = fmt.Sprintf("shape %s has more than %d elements", shapeString(e.Shape), math.MaxInt)
		case !whole:
			fault = fmt.Sprintf("%s %s does not fill whole bytes", e.DType.label(), shapeString(e.Shape))
		case need != uint64(len(e.Data)):
			fault = fmt.Sprintf("%d bytes of data, but %s %s needs %s", len(e.Data), e.DType.label(), shapeString(e.Shape), bytesString(need))
		}
		if fault != "" {
			return faultIn(e.Name, "nothing was written", "%s", fault)
		}
		seen[e.Name] = true
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
			return fmt.Errorf("safetensors: metadata %s: key and value must be UTF-8; nothing was written", quote(key))
		}
	}
	return nil
}

// header returns the length field and the header of a file that holds entries
// in this order.
func header(entries []Entry, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthBytes))
	sep := "{"
	member := func(key string) {
		b.WriteString(sep + jsonString(key) + ":")
		sep = ","
	}
	if len(metadata) > 0 {
		member(metadataKey)
		sep = "{"
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			member(key)
			b.WriteString(jsonString(metadata[key]))
		}
		b.WriteString("}")
	}
	end := 0
	for _, e := range entries {
		begin := end
		end += len(e.Data)
		shape, _ := json.Marshal(append([]int{}, e.Shape...)) // never null
		member(e.Name)
		fmt.Fprintf(&b, `{"dtype":%s,"shape":%s,"data_offsets":[%d,%d]}`, jsonString(string(e.DType)), shape, begin, end)
	}
	if sep == "{" {
		b.WriteString(sep)
	}
	b.WriteString("}")
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	n := b.Len() - lengthBytes
	if n > maxHeader {
		return nil, fmt.Errorf("safetensors: the header would have %d bytes, more than the limit of %d; nothing was written: write several files", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}

// jsonString returns s, which is UTF-8, as a JSON string.
func jsonString(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string has no unencodable form
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
