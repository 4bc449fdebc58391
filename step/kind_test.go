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

// What has an effect on a buffer in the table may move gradients; a check, a
// norm and an update of the scale may not.
func TestMovesGradients(t *testing.T) {
	for _, transition := range Table {
		want := transition.apply != nil && transition.Kind != Check || transition.Kind == Clip || transition.Kind == Reduce
		if got := transition.Kind.MovesGradients(); got != want {
			t.Errorf("%v.MovesGradients() = %v", transition.Kind, got)
		}
	}
}
