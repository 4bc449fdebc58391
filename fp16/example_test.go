package fp16_test

import (
	"fmt"

	"ordercheck/fp16"
)

// Where FP16 training overflows: 65504 is the last finite number, and 65520,
// half a spacing beyond it, is the first to become infinite.
func ExampleHalfFromFloat64() {
	for _, x := range []float64{65504, 65519.99, 65520} {
		fmt.Println(x, "→", fp16.HalfFromFloat64(x).Float32())
	}
	// Output:
	// 65504 → 65504
	// 65519.99 → 65504
	// 65520 → +Inf
}

// Rounding once and rounding twice differ.
func ExampleHalfFromFloat64_doubleRounding() {
	x := 1 + 0x1p-11 + 0x1p-30 // just above half way from 1 to the next Half
	fmt.Println(fp16.HalfFromFloat64(x).Float32())
	fmt.Println(fp16.HalfFromFloat32(float32(x)).Float32())
	// Output:
	// 1.0009766
	// 1
}
