package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ordercheck/fp16"
)

func TestWrite(t *testing.T) {
	got := written(t, []Entry{
		F16("h", []int{2}, []fp16.Half{0x3c00, 0xfc00}),
		BF16("b", []int{1}, []fp16.BFloat{0x3f80}),
		F32("s", nil, []float32{1}),
		F64("d", []int{1, 1}, []float64{-1}),
		I64("i", []int{1}, []int64{-2}),
		F32("e", []int{0}, nil),
	}, map[string]string{"step": "3", "phase": "<after> \"unscale\""})
	header := `{"__metadata__":{"phase":"<after> \"unscale\"","step":"3"},` +
		`"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},` +
		`"d":{"dtype":"F64","shape":[1,1],"data_offsets":[8,16]},` +
		`"e":{"dtype":"F32","shape":[0],"data_offsets":[16,16]},` +
		`"s":{"dtype":"F32","shape":[],"data_offsets":[16,20]},` +
		`"b":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]},` +
		`"h":{"dtype":"F16","shape":[2],"data_offsets":[22,26]}}`
	header += strings.Repeat(" ", -len(header)&7)
	want := length(uint64(len(header))) + header +
		"\xfe\xff\xff\xff\xff\xff\xff\xff" + "\x00\x00\x00\x00\x00\x00\xf0\xbf" +
		"\x00\x00\x80\x3f" + "\x80\x3f" + "\x00\x3c\x00\xfc"
	if string(got) != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got, want := string(written(t, nil, nil)), length(8)+"{}      "; got != want {
		t.Errorf("nothing written as %q, want %q", got, want)
	}
}

func TestWriteRefuses(t *testing.T) {
	one := func(name string) Entry { return F32(name, nil, []float32{1}) }
	for _, c := range []struct {
		entries  []Entry
		metadata map[string]string
		want     string
	}{
		{[]Entry{one("__metadata__")}, nil, `tensor "__metadata__": the format keeps this name for itself`},
		{[]Entry{one("a\xff")}, nil, `tensor "a\xff": the name is not UTF-8`},
		{[]Entry{one("a"), one("b"), F16("a", nil, make([]fp16.Half, 1))}, nil, `tensor "a": the name is used twice`},
		{[]Entry{{"a", "Q4", nil, nil}}, nil, `tensor "a": dtype "Q4" is not known`},
		{[]Entry{F32("a", []int{-1, -1}, []float32{1})}, nil, `tensor "a": shape [-1 -1] has a negative dimension`},
		{[]Entry{F32("a", []int{1 << 40, 1 << 40}, nil)}, nil, `tensor "a": shape [1099511627776 1099511627776] has more than 9223372036854775807 elements`},
		{[]Entry{{"a", "F4", []int{3}, []byte{0, 0}}}, nil, `tensor "a": F4 [3] does not fill whole bytes`},
		{[]Entry{F32("a", []int{2, 3}, make([]float32, 5))}, nil, `tensor "a": 20 bytes of data, but F32 [2 3] needs 24`},
		{[]Entry{F64("a", nil, nil)}, nil, `tensor "a": 0 bytes of data, but F64 [] needs 8`},
		{[]Entry{one("a")}, map[string]string{"k\xff": ""}, `metadata "k\xff": key and value must be UTF-8`},
		{[]Entry{one("a")}, map[string]string{"k": "\xff"}, `metadata "k": key and value must be UTF-8`},
		{[]Entry{one("a")}, map[string]string{"k": strings.Repeat("x", maxHeader)},
			`the header would have 100000080 bytes, more than the limit of 100000000`},
	} {
		var b bytes.Buffer
		err := Write(&b, c.entries, c.metadata)
		if err == nil || !strings.HasPrefix(err.Error(), "safetensors: "+c.want+"; nothing was written") {
			t.Errorf("got  %v\nwant safetensors: %s; nothing was written", err, c.want)
		}
		if b.Len() > 0 {
			t.Errorf("%s: %d bytes were written", c.want, b.Len())
		}
	}
}

func TestWriteReportsWhatWritingReports(t *testing.T) {
	full := errors.New("disk full")
	entries := []Entry{F32("a", nil, []float32{1}), F32("b", nil, []float32{2})}
	for calls, want := range []string{"the header", `tensor "a"`, `tensor "b"`} {
		w := &failingWriter{calls, full}
		if err := Write(w, entries, nil); !errors.Is(err, full) || err.Error() != "safetensors: cannot write "+want+": disk full" {
			t.Errorf("call %d fails: %v", calls, err)
		}
	}
}

// failingWriter fails after some calls.
type failingWriter struct {
	calls int
	err   error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.calls--; w.calls < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func ExampleWrite() {
	var b bytes.Buffer
	err := Write(&b, []Entry{F32("grad/0.weight", []int{2, 2}, []float32{1, 2, 3, 4})}, map[string]string{"step": "3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	t, _ := f.Tensor("grad/0.weight")
	row := make([]float64, 2)
	_, err = t.ReadAt(row, 2)
	fmt.Println(t.DType, t.Shape, row, err, f.Metadata())
	// Output: F32 [2 2] [3 4] <nil> map[step:3]
}
