package step

// Operation is what a call, or a change that no call explains, does to the
// gradients of some parameters. A call may stand for several: a fused step
// unscales, checks and steps.
type Operation struct {
	Kind    Kind
	Event   int // index of the event that it stands for, in its rank's story
	Attempt Maybe[int]
	On      Set  // the parameters it acts on
	Certain bool // On is known, not assumed

	Term    Unit        // Backward: unit of the term it adds
	Scalers []string    // Backward: scalers whose scale is in that unit
	Site    string      // Backward: the place in the script
	Fresh   Maybe[bool] // Backward: whether the buffer was seen to be empty before it

	lastStep int // Backward: event of the last step before it; kept by the machine

	Divisor float64 // Unscale: the scale that gradients are divided by

	Threshold Unit // Clip: the unit of its threshold
	Inert     bool // Clip: a threshold of infinity, which only reads the norm
	Partwise  bool // Clip: of single examples, which belongs on each micro-batch
	Refilled  bool // Clip: a backward ran since the last step, so that copies of its gradients may wait here

	Scaler string // UpdateScale
	Given  bool   // UpdateScale: set by hand

	FoundInf Maybe[bool] // Unscale, Check, Step

	Claimed    bool    // whether code that makes no call ran before it was never looked at
	Multiplier float64 // GradOp: the scale that gradients are multiplied by; 0: none
	Muddles    bool    // GradOp: what the buffer holds afterwards is not known

	Optimizer string
	Outcome   Outcome // Step
	Scaled    bool    // Step: some loss of this run is multiplied by a scale
}

// Outcome is what a step did.
type Outcome uint8

const (
	Applied Outcome = iota // the optimizer consumed the gradients
	Skipped                // it was not called, or a fused one was handed found_inf
	Idle                   // it was called and moved no parameter: a learning rate of zero, or it skipped by itself
)

// Consumption is what one step took: the sentence that made each part.
type Consumption struct {
	Event     int
	Attempt   Maybe[int]
	Optimizer string
	Outcome   Outcome
	Parts     []Part // as they were when the step began
	Broken    []Breach
}

// Breach is a precondition that failed.
type Breach struct {
	*Requirement
	Event int  // where it failed
	On    Set  // for which parameters
	Unit  Unit // that they had
}

// Breaches calls yield for each failed precondition of the given rule behind
// this step: its own, and those of the words that made the gradients that it
// took. What was done to gradients that an earlier step has consumed is left out.
func (c *Consumption) Breaches(rule string, yield func(*Part, Breach)) {
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.State == Filled {
			for _, w := range p.Words {
				for _, b := range w.Breaches {
					if b.Rule == rule {
						yield(p, b)
					}
				}
			}
		}
		for _, b := range c.Broken {
			if b.Rule == rule && !b.On.And(p.On).Empty() {
				yield(p, b)
			}
		}
	}
}
