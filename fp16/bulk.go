package fp16

import "fmt"

// checkLengths panics unless numBytes holds exactly numValues 16-bit numbers:
// a caller that is off would leave part of dst stale or part of src unread.
func checkLengths(fn string, numValues, numBytes int) {
	if numBytes != 2*numValues {
		panic(fmt.Sprintf("fp16: %s: %d bytes for %d values: need 2 bytes for each", fn, numBytes, numValues))
	}
}
