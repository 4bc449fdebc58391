package safetensors

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzOpen opens any bytes, and checks what is accepted: it holds what Open
// promises, and where Write can write it, it reads back the same.
//
//	go test ./record/safetensors -run '^$' -fuzz FuzzOpen -fuzztime 60s
func FuzzOpen(f *testing.F) {
	f.Add(readReference(f))
	for _, seed := range []string{
		"", length(0), length(1<<64 - 1), file(`{}`), file(`{} `), file(`[]`), file("{\"\xff\":0}"),
		file(`{"__metadata__":{"k":"v"}}`),
		file(`{"a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}}`, 5),
		file(`{"a":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"Q8","shape":[9],"data_offsets":[0,3],"x":[{}]}}`, 3),
		file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"a":{"dtype":"I64","shape":[1],"data_offsets":[1,9]}}`, 9),
		file(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,9223372036854775807]}}`),
		file(`{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
		file(`{"a":{"x":` + strings.Repeat("[", 100)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "safetensors: ") || !strings.Contains(err.Error(), "; ") {
				t.Fatalf("error without origin or advice: %v", err)
			}
			return
		}
		mustHold(t, x, len(b))
		entries := entriesOf(t, x)
		for _, e := range entries {
			if e.DType.Bits() == 0 {
				return
			}
		}
		again := written(t, entries, x.Metadata())
		if thrice := written(t, entriesOf(t, open(t, again)), x.Metadata()); !bytes.Equal(again, thrice) {
			t.Fatalf("%q, read and written again, is %q", again, thrice)
		}
	})
}
