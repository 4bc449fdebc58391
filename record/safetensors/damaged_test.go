package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// length returns a length field.
func length(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

const (
	cutShort = "; the file is damaged or was cut short: copy or write it again"
	notOurs  = "; this is no safetensors file, or its beginning is damaged"
	writer   = "; the file is damaged, or the program that wrote it has a fault: write it again"
)

func TestDamagedFiles(t *testing.T) {
	// one is a sound entry of 4 bytes.
	const one = `{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`
	for _, c := range []struct {
		name, file, want string
	}{
		// The length field.
		{"empty file", "", `byte 0: the file has 0 bytes, but the header's length alone takes 8` + cutShort},
		{"seven bytes", "1234567", `byte 0: the file has 7 bytes, but the header's length alone takes 8` + cutShort},
		{"cut in the header", length(20) + `{"a":`, `byte 0: the header's length is given as 20, but only 5 bytes follow` + cutShort},
		{"length over the limit", length(100_000_001) + "{}", `byte 0: the header's length is given as 100000001, more than the limit of 100000000` + notOurs},
		{"largest length", length(1<<64-1) + "{}", `byte 0: the header's length is given as 18446744073709551615, more than the limit of 100000000` + notOurs},
		{"a zip file", "PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", `byte 0: the header's length is given as 578712552184433488, more than the limit of 100000000` + notOurs},

		// The header's text.
		{"no header", length(0), `byte 8: the header begins with "", not with "{"` + notOurs},
		{"an array", file(`[]`), `byte 8: the header begins with "[", not with "{"` + notOurs},
		{"space first", file(` {}`), `byte 8: the header begins with " ", not with "{"` + notOurs},
		{"not JSON", file(`{"a"=1}`), `byte 12: the header is not JSON: "=1}" is not expected here` + writer},
		{"comma at the end", file(`{"a":` + one + `,}`), `byte 62: the header is not JSON: "}" is not expected here` + writer},
		{"bad literal", file(`{"a":{"x":nil}}`), `byte 18: the header is not JSON: "nil}}" is not expected here` + writer},
		{"line feed in a string", file("{\"aaaaaaaaé\n\":0}"), `byte 9: the header is not JSON: "\"aaaaaaaa" is not expected here` + writer},
		{"ends early", file(`{"a":{"dtype":"F32"`), `byte 27: the header ends in the middle of its JSON object` + cutShort},
		{"ends in a string", file(`{"a`), `byte 11: the header ends in the middle of its JSON object` + cutShort},
		{"text after it", file(`{} x`), `byte 11: "x" follows the header's JSON object; only spaces may` + writer},
		{"zeros after it", file("{}\x00"), `byte 10: "\x00" follows the header's JSON object; only spaces may` + writer},
		{"not UTF-8", file("{\"gr\xffd\":" + one + "}"), `byte 12: the header is not UTF-8` + notOurs},
		{"key no string", file(`{1:2}`), `byte 9: the header is not JSON: "1:2}" is not expected here` + writer},
		{"deep nesting", file(`{"a":{"x":` + strings.Repeat("[", 1000)), `byte 82: the header nests deeper than 64 levels` + notOurs},
		{"deep nesting of objects", file(`{"a":{"x":` + strings.Repeat(`{"":`, 1000)), `byte 274: the header nests deeper than 64 levels` + notOurs},

		// Keys given twice.
		{"name twice", file(`{"a":` + one + `,"a":` + one + `}`), `byte 62: the header has the key "a" for the second time, after byte 9` + writer},
		{"escaped name twice", file(`{"a":` + one + `,"\u0061":` + one + `}`), `byte 62: the header has the key "a" for the second time, after byte 9` + writer},
		{"field twice", file(`{"a":{"dtype":"F32","dtype":"F16"}}`), `byte 28: tensor "a" has the key "dtype" for the second time, after byte 14` + writer},
		{"unknown field twice", file(`{"a":{"x":0,"x":1}}`), `byte 20: tensor "a" has the key "x" for the second time, after byte 14` + writer},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`), `byte 27: the header has the key "__metadata__" for the second time, after byte 9` + writer},
		{"metadata key twice", file(`{"__metadata__":{"k":"1","k":"2"}}`), `byte 33: __metadata__ has the key "k" for the second time, after byte 25` + writer},

		// Values of the wrong kind.
		{"metadata no object", file(`{"__metadata__":null}`), `byte 24: __metadata__ must be a JSON object, not null` + writer},
		{"metadata no string", file(`{"__metadata__":{"step":3}}`), `byte 32: __metadata__: "step" must be a string, not 3` + writer},
		{"tensor no object", file(`{"a":[1]}`), `byte 13: tensor "a" must be a JSON object, not an array` + writer},
		{"no dtype", file(`{"a":{"shape":[1],"data_offsets":[0,4]}}`), `byte 9: tensor "a" has no dtype` + writer},
		{"no shape", file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`), `byte 9: tensor "a" has no shape` + writer},
		{"no offsets", file(`{"a":{"dtype":"F32","shape":[1]}}`), `byte 9: tensor "a" has 0 data_offsets, not two (begin and end)` + writer},
		{"three offsets", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`), `byte 9: tensor "a" has 3 data_offsets, not two (begin and end)` + writer},
		{"dtype no string", file(`{"a":{"dtype":true}}`), `byte 22: tensor "a": dtype must be a string, not true` + writer},
		{"shape no array", file(`{"a":{"shape":"[1]"}}`), `byte 22: tensor "a": shape must be a JSON array, not the string "[1]"` + writer},
		{"shape of arrays", file(`{"a":{"shape":[[1]]}}`), `byte 23: tensor "a": shape must hold whole numbers from 0 to 9223372036854775807, not an array` + writer},
		{"negative dimension", file(`{"a":{"shape":[3,-1]}}`), `byte 25: tensor "a": shape must hold whole numbers from 0 to 9223372036854775807, not -1` + writer},
		{"negative zero", file(`{"a":{"shape":[-0]}}`), `byte 23: tensor "a": shape must hold whole numbers from 0 to 9223372036854775807, not -0` + writer},
		{"fraction", file(`{"a":{"shape":[1.0]}}`), `byte 23: tensor "a": shape must hold whole numbers from 0 to 9223372036854775807, not 1.0` + writer},
		{"dimension over 2^63", file(`{"a":{"shape":[9223372036854775808]}}`), `byte 23: tensor "a": shape must hold whole numbers from 0 to 9223372036854775807, not 9223372036854775808` + writer},
		{"negative offset", file(`{"a":{"data_offsets":[-4,0]}}`), `byte 30: tensor "a": data_offsets must hold whole numbers from 0 to 9223372036854775807, not -4` + writer},

		// Shapes and places that cannot be.
		{"product overflows", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`),
			`tensor "a": shape [4294967296 4294967296] has more than 9223372036854775807 elements` + writer},
		{"product of 2^63", file(`{"a":{"dtype":"?","shape":[4294967296,2147483648],"data_offsets":[0,0]}}`),
			`tensor "a": shape [4294967296 2147483648] has more than 9223372036854775807 elements` + writer},
		{"product overflows before a zero", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}`),
			`tensor "a": shape [4294967296 4294967296 0] has more than 9223372036854775807 elements` + writer},
		{"byte size overflows", file(`{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}`),
			`tensor "a": data_offsets [0, 0] hold 0 bytes but F32 [4611686018427387904] needs more than any file can hold` + cutShort},
		{"byte size of 2^63", file(`{"a":{"dtype":"F16","shape":[4611686018427387904],"data_offsets":[0,0]}}`),
			`tensor "a": data_offsets [0, 0] hold 0 bytes but F16 [4611686018427387904] needs 9223372036854775808` + cutShort},
		{"too few bytes", file(`{"grad/0.weight":{"dtype":"F32","shape":[32,8],"data_offsets":[0,1000]}}`, 1000),
			`tensor "grad/0.weight": data_offsets [0, 1000] hold 1000 bytes but F32 [32 8] needs 1024` + cutShort},
		{"too many bytes", file(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}}`, 8),
			`tensor "a": data_offsets [0, 8] hold 8 bytes but F16 [2] needs 4` + cutShort},
		{"unlisted F8 of the wrong size", file(`{"a":{"dtype":"F8_X\n","shape":[2],"data_offsets":[0,1]}}`, 1),
			`tensor "a": data_offsets [0, 1] hold 1 bytes but "F8_X\n" [2] needs 2` + cutShort},
		{"half a byte", file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1),
			`tensor "a": F4 [3] ends inside a byte: elements of 4 bits must fill whole bytes` + writer},
		{"begin after end", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1),
			`tensor "a": data_offsets [1, 0] end before they begin` + writer},
		{"cut in the data", file(`{"a":{"dtype":"F32","shape":[256],"data_offsets":[0,1024]}}`, 1000),
			`tensor "a": data_offsets [0, 1024] end 24 bytes past the end of the file, whose data are the 1000 bytes from byte 67` + cutShort},
		{"far past the end", file(`{"a":{"dtype":"?","shape":[],"data_offsets":[9223372036854775807,9223372036854775807]}}`, 1),
			`tensor "a": data_offsets [9223372036854775807, 9223372036854775807] end 9223372036854775806 bytes past the end of the file, whose data are the 1 bytes from byte 95` + cutShort},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6),
			`tensor "b": it begins at byte 115 of the file, inside tensor "a", which ends at byte 117` + writer},
		{"the same bytes twice", file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			`tensor "b": it begins at byte 113 of the file, inside tensor "a", which ends at byte 114` + writer},
		{"an empty tensor inside another", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2),
			`tensor "b": it begins at byte 114 of the file, inside tensor "a", which ends at byte 115` + writer},
		{"gap", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 4),
			`byte 114: 2 bytes before tensor "b" belong to no tensor` + writer},
		{"gap at the start", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
			`byte 61: 1 bytes before tensor "a" belong to no tensor` + writer},
		{"trailing bytes", file(`{"a":`+one+`}`, 9), `byte 66: 5 bytes after the last tensor belong to no tensor` + writer},
		{"data of no tensor", file(`{}`, 3), `byte 10: 3 bytes after the last tensor belong to no tensor` + writer},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(strings.NewReader(c.file), int64(len(c.file)))
			if err == nil {
				t.Fatalf("no error; tensors %q", f.Names())
			}
			if got, want := err.Error(), "safetensors: "+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func file(header string, numData ...int) string {
	n := 0
	for _, d := range numData {
		n += d
	}
	return string(rawFile(header, n))
}

// Odd, but sound.
func TestOddFiles(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"no tensor", file(`{}`), ""},
		{"spaces after the header", file("{}  \t\r\n "), ""},
		{"spaces inside", file("{ \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 2 ] , \"data_offsets\" : [ 0 , 2 ] } }", 2), "a"},
		{"empty metadata", file(`{"__metadata__":{}}`), ""},
		{"empty name", file(`{"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1), ""},
		{"unknown fields", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{"y":[1,{}],"z":null}}}`, 1), "a"},
		{"unknown dtype", file(`{"a":{"dtype":"Q4_K","shape":[256],"data_offsets":[0,144]}}`, 144), "a"},
		{"out of order", file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2), "a b"},
		{"empty tensors everywhere", file(`{"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
			"b":{"dtype":"F64","shape":[3,0,2],"data_offsets":[1,1]},"c":{"dtype":"F64","shape":[9,0],"data_offsets":[1,1]}}`, 1), "a b c z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, []byte(c.file))
			if got := strings.Join(f.Names(), " "); got != c.want {
				t.Errorf("tensors %q, want %q", got, c.want)
			}
		})
	}
}

// A message quotes a file only so far.
func TestErrorsStayShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, header := range []string{
		`{"` + long + `":1}`,
		`{"a":{"dtype":"U8","shape":["` + long + `"]}}`,
		`{"a":{"dtype":"U8","shape":[1` + strings.Repeat("0", 1<<20) + `]}}`,
		`{"a":{"dtype":"F8_` + long + `","shape":[1],"data_offsets":[0,0]}}`,
		`{"a":{"dtype":"U8","shape":[0` + strings.Repeat(",9", 1<<20) + `],"data_offsets":[0,0]}}`,
		`{"__metadata__":{"` + long + `":1}}`,
	} {
		b := rawFile(header, 0)
		_, err := Open(bytes.NewReader(b), int64(len(b)))
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("header %.30s…: error of %d bytes", header, len(err.Error()))
		}
	}
}

// A claimed size is not believed, not even the caller's: memory follows the
// bytes that are really there.
func TestAllocatesForRealBytesOnly(t *testing.T) {
	for _, b := range []string{
		length(maxHeader) + `{"a":`,
		file(`{"a":{"dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000]}}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(strings.NewReader(b), 1<<50)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Error("no error")
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%d bytes allocated for a file of %d bytes", n, len(b))
		}
	}
}

func TestOpenReportsWhatReadingReports(t *testing.T) {
	b := rawFile(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	disk := errors.New("disk on fire")
	for _, c := range []struct {
		at   int64
		want string
	}{
		{0, "safetensors: byte 0: cannot read the header's length: disk on fire"},
		{20, "safetensors: byte 20: cannot read the header of 53 bytes: disk on fire"},
	} {
		_, err := Open(failingAt{bytes.NewReader(b), c.at, disk}, int64(len(b)))
		if !errors.Is(err, disk) || err.Error() != c.want {
			t.Errorf("reading fails at %d: got %v, want %s", c.at, err, c.want)
		}
	}
	for _, cut := range []int{0, 5, 8, 30} {
		_, err := Open(bytes.NewReader(b[:cut]), int64(len(b)))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("file cut at %d behind Open's back: %v, want unexpected EOF", cut, err)
		}
	}
	for _, size := range []int64{-1, -1 << 63} {
		if _, err := Open(bytes.NewReader(b), size); err == nil {
			t.Errorf("no error at size %d", size)
		}
	}
}

// failingAt fails for bytes from at on.
type failingAt struct {
	r   io.ReaderAt
	at  int64
	err error
}

func (f failingAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.at {
		return f.r.ReadAt(p, off)
	}
	n, _ := f.r.ReadAt(p[:max(0, f.at-off)], off)
	return n, f.err
}
