// Command ordercheck finds faults in the order of mixed-precision training
// steps: gradients clipped while they carry the loss scale, steps taken on
// gradients that overflowed, and what else is silent. `ordercheck help` lists
// what it does.
package main

import "os"

func main() {
	os.Exit(ordercheck(os.Args[1:], streams{os.Stdout, os.Stderr}))
}
