package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

const (
	// lengthBytes is the size of the field that holds the header's length.
	lengthBytes = 8

	// maxHeader is the largest length of a header, as in the reference library.
	maxHeader = 100_000_000

	// maxNesting bounds the depth of values under keys that this package does
	// not know. The format itself needs three levels.
	maxNesting = 64

	metadataKey = "__metadata__"
)

// entry is what the header says about one tensor, not checked beyond its JSON.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int64 // data_offsets
}

// parseHeader parses the JSON text that follows the length field. Positions in
// its errors are bytes of the file.
func parseHeader(text []byte) (entries []entry, metadata map[string]string, err error) {
	if i := invalidUTF8(text); i >= 0 {
		return nil, nil, faultAt(lengthBytes+int64(i), fixNotOurs, "the header is not UTF-8")
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, nil, faultAt(lengthBytes, fixNotOurs, "the header begins with %q, not with \"{\"", text[:min(1, len(text))])
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(text)), text: text}
	p.dec.UseNumber()
	metadata = map[string]string{}
	err = p.object("the header", func(key string, at int64) error {
		if key == metadataKey {
			return p.metadata(metadata)
		}
		e, err := p.entry(key, at)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	end := p.dec.InputOffset()
	if rest := bytes.TrimLeft(text[end:], " \t\r\n"); len(rest) > 0 {
		return nil, nil, faultAt(lengthBytes+int64(len(text)-len(rest)), fixWriter,
			"%q follows the header's JSON object; only spaces may", rest[:1])
	}
	return entries, metadata, nil
}

// invalidUTF8 returns the index of the first byte that is not UTF-8, -1 if there is none.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

// A parser reads the header token by token. It never descends by recursion.
type parser struct {
	dec  *json.Decoder
	text []byte
}

// next returns the next token and the byte of the file at which it begins.
func (p *parser) next() (tok json.Token, at int64, err error) {
	i := p.dec.InputOffset()
	for i < int64(len(p.text)) && bytes.IndexByte([]byte(" \t\r\n,:"), p.text[i]) >= 0 {
		i++
	}
	at = lengthBytes + i
	tok, err = p.dec.Token()
	switch {
	case err == nil:
		return tok, at, nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at, faultAt(lengthBytes+int64(len(p.text)), fixCutShort, "the header ends in the middle of its JSON object")
	default:
		return nil, at, faultAt(at, fixWriter, "the header is not JSON: %q is not expected here", bytes.ToValidUTF8(p.text[i:min(i+10, int64(len(p.text)))], nil))
	}
}

// object reads a JSON object and calls field for each key, which must read the
// key's value. what names the object in errors.
func (p *parser) object(what string, field func(key string, at int64) error) error {
	tok, at, err := p.next()
	if err != nil {
		return err
	}
	if tok != json.Delim('{') {
		return faultAt(at, fixWriter, "%s must be a JSON object, not %s", what, describe(tok))
	}
	seen := map[string]int64{}
	for {
		tok, at, err := p.next()
		if err != nil {
			return err
		}
		if tok == json.Delim('}') {
			return nil
		}
		key, ok := tok.(string)
		if !ok {
			return faultAt(at, fixWriter, "%s must have a key here, not %s", what, describe(tok))
		}
		if first, twice := seen[key]; twice {
			return faultAt(at, fixWriter, "%s has the key %s for the second time, after byte %d", what, quote(key), first)
		}
		seen[key] = at
		if err := field(key, at); err != nil {
			return err
		}
	}
}

func (p *parser) metadata(m map[string]string) error {
	return p.object(metadataKey, func(key string, _ int64) error {
		tok, at, err := p.next()
		if err != nil {
			return err
		}
		s, ok := tok.(string)
		if !ok {
			return faultAt(at, fixWriter, "%s: %s must be a string, not %s", metadataKey, quote(key), describe(tok))
		}
		m[key] = s
		return nil
	})
}

// entry reads what the header says about the tensor whose name stands at at.
func (p *parser) entry(name string, at int64) (entry, error) {
	e := entry{name: name, shape: []int{}}
	what := "tensor " + quote(name)
	var offsets []int64
	var hasDType, hasShape bool
	err := p.object(what, func(key string, _ int64) error {
		switch key {
		case "dtype":
			hasDType = true
			tok, at, err := p.next()
			if err != nil {
				return err
			}
			s, ok := tok.(string)
			if !ok {
				return faultAt(at, fixWriter, "%s: dtype must be a string, not %s", what, describe(tok))
			}
			e.dtype = DType(s)
			return nil
		case "shape":
			hasShape = true
			return p.numbers(what+": shape", math.MaxInt, func(n int64) { e.shape = append(e.shape, int(n)) })
		case "data_offsets":
			return p.numbers(what+": data_offsets", math.MaxInt64, func(n int64) { offsets = append(offsets, n) })
		default:
			return p.skip()
		}
	})
	switch {
	case err != nil:
		return e, err
	case !hasDType:
		return e, faultAt(at, fixWriter, "%s has no dtype", what)
	case !hasShape:
		return e, faultAt(at, fixWriter, "%s has no shape", what)
	case len(offsets) != 2:
		return e, faultAt(at, fixWriter, "%s has %d data_offsets, not two (begin and end)", what, len(offsets))
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

// numbers reads a JSON array of whole numbers from 0 to limit.
func (p *parser) numbers(what string, limit int64, add func(int64)) error {
	tok, at, err := p.next()
	if err != nil {
		return err
	}
	if tok != json.Delim('[') {
		return faultAt(at, fixWriter, "%s must be a JSON array, not %s", what, describe(tok))
	}
	for {
		tok, at, err := p.next()
		if err != nil {
			return err
		}
		if tok == json.Delim(']') {
			return nil
		}
		digits, _ := tok.(json.Number)
		n, err := strconv.ParseInt(digits.String(), 10, 64)
		if err != nil || n > limit || digits[0] == '-' {
			return faultAt(at, fixWriter, "%s must hold whole numbers from 0 to %d, not %s", what, limit, describe(tok))
		}
		add(n)
	}
}

// skip reads any JSON value and forgets it.
func (p *parser) skip() error {
	for depth := 0; ; {
		tok, at, err := p.next()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			if depth > maxNesting {
				return faultAt(at, fixNotOurs, "the header nests deeper than %d levels", maxNesting)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// describe names a token in an error.
func describe(tok json.Token) string {
	switch v := tok.(type) {
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "an array", '}': "the end of an object", ']': "the end of an array"}[v]
	case json.Number:
		return short(v.String())
	case string:
		return "the string " + quote(v)
	case bool:
		return strconv.FormatBool(v)
	default:
		return "null"
	}
}
