package step

// Maybe is a value that a recording may leave out.
type Maybe[T any] struct {
	Value T
	Known bool
}

// Some returns a known value.
func Some[T any](v T) Maybe[T] { return Maybe[T]{v, true} }

// Is reports whether the value is known and equal to v.
func Is[T comparable](m Maybe[T], v T) bool { return m.Known && m.Value == v }

// Event is one call of a training loop, in the order in which things happened
// on its rank. The fields are those of the recording format, version 1; which
// of them a kind uses stands there. A field that the recording leaves out, or
// gives as null, is not Known (strings: empty).
type Event struct {
	Seq     int
	Rank    int
	Attempt Maybe[int] // the format's "step": the loop's attempts, skipped ones included
	Micro   Maybe[int]

	Kind Kind
	Op   string // the name as recorded

	File     string // script that made the call; empty: the recording's script
	Line     int    // of the script; 0: not known
	Recorded Position

	Scaler    string
	Optimizer string

	Scale, Previous Maybe[float64] // loss scale: in force or new, and before
	Loss, Scaled    Maybe[float64] // loss as given, loss · S as returned
	Root, Factor    Maybe[float64] // value differentiated; the constant that multiplied it last
	Norm, NormType  Maybe[float64] // in the unit that the gradients had
	Threshold       Maybe[float64]
	GradScale       Maybe[float64] // what a fused optimizer was handed to divide by
	Value           Maybe[float64] // of a norm, a reduced value, a log line
	LR              []float64      // one, or one for each group
	GrowthTracker   Maybe[int]
	NTensors        Maybe[int]

	Enabled, FoundInf, Called, Applied   Maybe[bool]
	Implicit, Fused, NormGiven, GivenNew bool
	SetToNone                            Maybe[bool]

	Via, Rule, What, Inside      string
	Mode                         string // sum, mean, max of a reduction; decay, noise, … of a grad_op
	During, ErrorType, Text, Key string

	Covers Maybe[[]string] // parameters that a norm, clip, check or reduction was handed

	Before, After Snapshot

	Unread []string // fields that this program does not know

	// Inferred marks an operation that no call shows: the numbers before and
	// after say that it happened.
	Inferred bool
}

// Position is a line of a file.
type Position struct {
	File string
	Line int
}

// Snapshot names what was looked at before or after a call.
type Snapshot struct {
	Looked  bool     // false: nobody looked; true with nothing named: no tensor had a value
	Files   []string // safetensors files in the recording
	Summary map[string]Summary
}

// Named reports whether there are numbers to read.
func (s Snapshot) Named() bool { return len(s.Files) > 0 || len(s.Summary) > 0 }

// Summary stands for a tensor that was too large to keep.
type Summary struct {
	N         int
	NonFinite int
	Max       float64 // largest magnitude of a finite element
	SumSq     float64 // Σx² in float64 over finite elements
	Sample    []Sample
}

// Sample is one element of a tensor.
type Sample struct {
	Index int
	Value float64
}
