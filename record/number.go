package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Number is a JSON number that may be infinite or NaN: written as the strings
// "inf", "-inf" and "nan"; read also as the bare words NaN, Infinity and
// -Infinity that Python's json module writes.
type Number float64

func (n *Number) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		v, ok := nonFinite(s)
		if !ok {
			return fmt.Errorf(`%q is no number; not-finite ones are "inf", "-inf" or "nan"`, s)
		}
		*n = Number(v)
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(v, 0) { // 1e999 reads as infinity, as Python reads it
		return fmt.Errorf("%.40s is no number", b)
	}
	*n = Number(v)
	return nil
}

func (n Number) MarshalJSON() ([]byte, error) {
	switch v := float64(n); {
	case math.IsNaN(v):
		return []byte(`"nan"`), nil
	case math.IsInf(v, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-inf"`), nil
	default:
		return json.Marshal(v)
	}
}

func nonFinite(s string) (float64, bool) {
	switch s {
	case "inf", "Infinity", "+inf":
		return math.Inf(1), true
	case "-inf", "-Infinity":
		return math.Inf(-1), true
	case "nan", "NaN":
		return math.NaN(), true
	}
	return 0, false
}

// unmarshal is json.Unmarshal that accepts the bare words NaN, Infinity and -Infinity.
func unmarshal(data []byte, v any) error {
	if json.Valid(data) {
		return json.Unmarshal(data, v)
	}
	return json.Unmarshal(quoteNonFinite(data), v)
}

var bareWords = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// quoteNonFinite puts the bare words into quotes; text inside strings is left alone.
func quoteNonFinite(data []byte) []byte {
	out := make([]byte, 0, len(data)+16)
	inString := false
scan:
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\' && i+1 < len(data):
			out = append(out, c, data[i+1])
			i++
			continue
		case c == '"':
			inString = !inString
		case !inString:
			for _, w := range bareWords {
				if bytes.HasPrefix(data[i:], w) {
					out = append(append(append(out, '"'), w...), '"')
					i += len(w) - 1
					continue scan
				}
			}
		}
		out = append(out, c)
	}
	return out
}
