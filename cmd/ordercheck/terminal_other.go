//go:build !(linux || darwin)

package main

import "os"

// terminal tells whether f is a terminal; its width is not known here.
func terminal(f *os.File) (columns int, ok bool) {
	info, err := f.Stat()
	return 0, err == nil && info.Mode()&os.ModeCharDevice != 0
}
