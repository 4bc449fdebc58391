package safetensors

import (
	"fmt"
	"strconv"
	"strings"
)

// What the reader of an error can do.
const (
	fixCutShort = "the file is damaged or was cut short: copy or write it again"
	fixNotOurs  = "this is no safetensors file, or its beginning is damaged"
	fixWriter   = "the file is damaged, or the program that wrote it has a fault: write it again"
)

// faultAt is an error at a byte of the file.
func faultAt(at int64, fix, format string, args ...any) error {
	return fmt.Errorf("safetensors: byte %d: %s; %s", at, fmt.Sprintf(format, args...), fix)
}

// faultIn is an error in a tensor.
func faultIn(name, fix, format string, args ...any) error {
	return fmt.Errorf("safetensors: tensor %s: %s; %s", quote(name), fmt.Sprintf(format, args...), fix)
}

// short cuts what a file made up down to a size fit for a message.
func short(s string) string {
	const limit = 120
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

func quote(name string) string { return strconv.Quote(short(name)) }

func shapeString(shape []int) string {
	const limit = 8
	if len(shape) <= limit {
		return fmt.Sprint(shape)
	}
	return strings.TrimSuffix(fmt.Sprint(shape[:limit]), "]") + fmt.Sprintf(" … %d dimensions]", len(shape))
}
