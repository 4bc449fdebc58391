package step

// Kind is an operation of the language. The names are those of the recording
// format, version 1.
type Kind uint8

const (
	Other        Kind = iota // an operation this program does not know; kept, never judged
	ScalerCreate             // a loss scaler is made
	ZeroGrad                 // the gradients of an optimizer are emptied
	ScaleLoss                // loss · S
	Backward                 // gradients of the root are added to the buffers
	Reduce                   // combined over ranks: gradients or a value
	Unscale                  // gradients / S, and this rank's found_inf
	Check                    // a finiteness verdict
	Norm                     // a norm is read
	Clip                     // gradients are limited by a threshold
	Step                     // the optimizer consumes the gradients, or is skipped
	UpdateScale              // the scale moves by its policy, or is given
	Schedule                 // the learning-rate schedule moves
	EMA                      // an average of the parameters moves
	GradOp                   // decay, noise, a multiplication: anything else done to gradients
	Log                      // what the user's own log said
	Save                     // state is read out
	Load                     // state is put back
	Fail                     // the framework stopped an attempt at an operation
	Note                     // a remark of the recorder
)

var kindNames = [...]string{
	Other: "other", ScalerCreate: "scaler_create", ZeroGrad: "zero_grad", ScaleLoss: "scale_loss",
	Backward: "backward", Reduce: "reduce", Unscale: "unscale", Check: "check", Norm: "norm",
	Clip: "clip", Step: "step", UpdateScale: "update_scale", Schedule: "schedule", EMA: "ema",
	GradOp: "grad_op", Log: "log", Save: "save", Load: "load", Fail: "error", Note: "note",
}

func (k Kind) String() string { return kindNames[k] }

// KindOf returns the operation of that name, Other if there is none.
func KindOf(op string) Kind {
	for k, name := range kindNames {
		if name == op {
			return Kind(k)
		}
	}
	return Other
}

// MovesGradients says whether a call of this kind may change gradients. Between
// two such calls the buffers stand still, unless code that makes no call moves them.
func (k Kind) MovesGradients() bool {
	switch k {
	case ZeroGrad, Backward, Reduce, Unscale, Clip, Step, GradOp, Load, Other:
		return true
	}
	return false
}
