package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6006 = Rule{
	ID:       "OC6006",
	Title:    "gradients computed in FP16 without a loss scale: a share is flushed to zero",
	Severity: Warning,

	Meaning: `FP16 ends at 6e-8, and below 6e-5 it loses bits. In backward the gradients of
activations pass through it from layer to layer, and without a loss scale their small
part becomes zero on the way. The first layers, at the far end of that way, lose most.

The whole gradient does not show it. In a measured run its cosine with the right one
stayed above 0.9999 while that of the first layer fell to 0.35: large layers make up
the norm, and they are right. In a stack of ten small layers 9.5 % of the first one's
elements were zero without a scale, and next to none at 2^14. Nothing overflows, no
step is skipped, the loss falls.

It is no problem while the gradients are large: in a network of three layers not one
element was lost. Zeros have other causes too, such as dead ReLU units or words that
were not in the batch. What counts are zeros that a scale would have kept; elements in
the last bits of FP16 are the sign of them.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    loss.backward()  # nothing lifts the small gradients
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Use torch.amp.GradScaler, or autocast to torch.bfloat16, which needs no scale. A
constant scale is better than none.`},
		{"Accelerate", `mixed_precision="fp16" makes the scaler, and accelerator.backward(loss) uses it;
loss.backward() does not.`},
		{"Keras", `model.fit scales under the "mixed_float16" policy. A loop of your own has to call
optimizer.scale_loss of a LossScaleOptimizer.`},
		{"JAX", `Nothing scales by itself: use flax's DynamicScale or one of jmp's loss scales.`},
	},

	Needs: "the autocast type, the absence of a scale, and gradients after a backward",

	Sources: []string{
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: the loss is scaled so that small gradients do not become zero in FP16",
		"IEEE 754-2019, binary16: smallest normal number 2^-14, smallest number 2^-24",
		"keras-team/keras #19244: training stalls in float16 in a custom loop; #19479: get_scaled_loss is gone in Keras 3",
	},

	decide: decideOC6006,
}

func decideOC6006(r *Run) Outcome {
	p := r.Manifest.Precision.Autocast
	if p == nil || *p != "float16" {
		return r.lacks("nothing is computed in FP16, as far as the record says")
	}
	if r.scaled() || r.has(step.ScalerCreate, nil) {
		return notApplicable("the loss is scaled")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		i, zero, all := s.Underflowed()
		if i < 0 {
			continue
		}
		judged = true
		if zero*100 < all {
			continue
		}
		hits = append(hits, hit{
			story: s, event: i, attempt: s.Events[i].Attempt, certainty: Observed,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("Gradients are computed in FP16 without a loss scale: %d of %d elements (%.1f %%) are zero or lie in the last bits of FP16.", zero, all, 100*float64(zero)/float64(all)),
					[]Evidence{{"elements that are zero or subnormal", zero}, {"elements", all}}
			},
		})
	}
	return decided(hits, judged)
}
