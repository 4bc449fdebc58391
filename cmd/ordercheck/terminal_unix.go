//go:build linux || darwin

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminal tells whether f is a terminal, and how many columns it has.
func terminal(f *os.File) (columns int, ok bool) {
	var size struct{ rows, columns, width, height uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns), errno == 0
}
