package step

import "testing"

// The names are those of the recording format: each names its kind and no other.
func TestKindNames(t *testing.T) {
	for k := Other; k <= Note; k++ {
		if got := KindOf(k.String()); got != k {
			t.Errorf("KindOf(%q) = %v", k, got)
		}
	}
	for _, op := range []string{"", "Step", "tensors", "other"} {
		if got := KindOf(op); got != Other {
			t.Errorf("KindOf(%q) = %v, not %v", op, got, Other)
		}
	}
}

// Calls that may change gradients, and those that may not. What is not known may
// do anything.
func TestMovesGradients(t *testing.T) {
	moves := map[Kind]bool{
		ZeroGrad: true, Backward: true, Reduce: true, Unscale: true, Clip: true, Step: true, GradOp: true, Load: true, Other: true,
		ScalerCreate: false, ScaleLoss: false, Check: false, Norm: false, UpdateScale: false, Schedule: false, EMA: false,
		Log: false, Save: false, Fail: false, Note: false,
	}
	for k := Other; k <= Note; k++ {
		want, listed := moves[k]
		if got := k.MovesGradients(); !listed || got != want {
			t.Errorf("%v.MovesGradients() = %v", k, got)
		}
	}
}
