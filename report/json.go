package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"io"

	"ordercheck/check"
)

// Schema is the JSON Schema (2020-12) of what [JSON] writes.
//
//go:embed schema.json
var Schema []byte

// JSON writes the report as one JSON value with one finding a line.
// Numbers that are not finite become the strings "inf", "-inf" and "nan";
// lists are never null. The report is left as it is.
func JSON(w io.Writer, r *check.Report) error {
	c := *r
	c.Inputs = list(r.Inputs)
	c.Notes = list(r.Notes)
	c.Rules = list(r.Rules)
	c.Findings = make([]check.Finding, len(r.Findings))
	for i, f := range r.Findings {
		f.Steps = list(f.Steps)
		f.Evidence = finite(f.Evidence)
		c.Findings[i] = f
	}
	return writeJSON(w, c)
}

// list returns s, or an empty slice for nil.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// finite copies evidence with its values as JSON can hold them.
func finite(es []check.Evidence) []check.Evidence {
	c := make([]check.Evidence, len(es))
	for i, e := range es {
		e.Value = plain(e.Value)
		if x, ok := e.Value.(float64); ok {
			if s, ok := notFinite(x); ok {
				e.Value = s
			}
		}
		c[i] = e
	}
	return c
}

// writeJSON writes v with each key and each element of a top-level list on a
// line of its own: short enough to read, and good to grep and to diff.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(breakLines(b.Bytes()))
	return err
}

// breakLines puts line breaks into compact JSON down to the second level.
func breakLines(compact []byte) []byte {
	const levels = 2
	var b bytes.Buffer
	depth, quoted := 0, false
	newline := func() { b.WriteString("\n  "[:1+depth]) }
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		if quoted {
			b.WriteByte(c)
			if c == '\\' {
				i++
				b.WriteByte(compact[i])
			}
			quoted = c != '"'
			continue
		}
		switch c {
		case '{', '[':
			depth++
			b.WriteByte(c)
			if empty := compact[i+1] == c+2; depth <= levels && !empty { // '{'+2 == '}', '['+2 == ']'
				newline()
			}
		case '}', ']':
			depth--
			if empty := compact[i-1] == c-2; depth < levels && !empty {
				newline()
			}
			b.WriteByte(c)
		case ',':
			b.WriteByte(c)
			if depth <= levels {
				newline()
			} else {
				b.WriteByte(' ')
			}
		case ':':
			b.WriteString(": ")
		case '"':
			quoted = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.Bytes()
}
