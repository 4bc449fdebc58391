package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1011 = Rule{
	ID:       "OC1011",
	Title:    "gradients unscaled in FP16, where small ones are flushed to zero",
	Severity: Error,

	Meaning: `The scale lifts small gradients into the range of FP16. A division that is done in
FP16 puts them back where they came from. The smallest number there is 2^-24 = 6.0e-8;
half of it and less becomes 0, and below 2^-14 = 6.1e-5 a number keeps the fewer bits
the smaller it is. Scaled by 65536, FP16 holds true gradients down to 2^-40 = 9.1e-13.
Divided in FP16, what lies between is gone: the loss was scaled for nothing.

GradScaler refuses, with "Attempting to unscale FP16 gradients.", and that text is
what most people see of this rule. A division by hand says nothing, nor does a scaler
that allows it (ShardedGradScaler), nor a framework that casts 1/S to the gradients'
type: beyond S = 2^24 that factor is itself 0, and so is every gradient.

It hides in averages. In a small FP16 transformer of 145000 parameters the divided
gradient had a cosine of 0.99999 with the true one, while in one bias 23 % of what was
not 0 had become 0, and at a loss of 0.04 a quarter of all elements lay where bits are
lost. The layers with the smallest gradients go first, and Adam would have given those
elements as long a step as any other.`,

	Wrong: `import torch

model.half()
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(masters, lr=3e-4)
scale = 65536.0
for x, y in loader:
    model.zero_grad()
    (loss_fn(model(x.half()).float(), y) * scale).backward()
    for m, p in zip(masters, model.parameters()):
        m.grad = p.grad.div_(scale).float()  # below 3e-8 nothing is left
    if torch.isfinite(torch.nn.utils.clip_grad_norm_(masters, 1.0)):
        optimizer.step()
        with torch.no_grad(): [p.copy_(m) for m, p in zip(masters, model.parameters())]
    else:
        scale /= 2`,

	Right: `import torch

model.half()
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(masters, lr=3e-4)
scale = 65536.0
for x, y in loader:
    model.zero_grad()
    (loss_fn(model(x.half()).float(), y) * scale).backward()
    for m, p in zip(masters, model.parameters()):
        m.grad = p.grad.float().div_(scale)  # widen first, then divide
    if torch.isfinite(torch.nn.utils.clip_grad_norm_(masters, 1.0)):
        optimizer.step()
        with torch.no_grad(): [p.copy_(m) for m, p in zip(masters, model.parameters())]
    else:
        scale /= 2`,

	Mend: []Remedy{
		{"PyTorch", `Keep the parameters in float32 and let torch.autocast choose FP16 for the operations:
gradients are float32 then, and GradScaler works. Only trainable parameters count;
frozen ones may stay in FP16. A model that must be FP16 needs float32 masters, also
for the updates themselves: 1.5 - 3e-4 is 1.5 in FP16. Do not divide by hand to get
around the error. With FSDP leave keep_low_precision_grads at False.`},
		{"Lightning", `precision="16-mixed" keeps parameters in float32. With "16-true" they are FP16 and the
loss is not scaled at all.`},
		{"JAX", `flax's DynamicScale casts gradients to float32 and then divides. With jmp make the
scale a float32 array, jnp.asarray(2.0**15, jnp.float32): an FP16 gradient widens as
it is divided; by an FP16 scale it stays FP16.`},
	},

	Needs: "the number format of the gradients that were unscaled, or gradients before and after the division",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py, _unscale_grads_: "Attempting to unscale FP16 gradients."`,
		"PyTorch 2.15.0, torch/distributed/fsdp/sharded_grad_scaler.py, unscale_: FP16 gradients are allowed",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.1: a float32 master copy of the weights",
		"tf_keras, tf_keras/mixed_precision/loss_scale_optimizer.py (2026-03): 1/S is cast to the gradient's type",
		"mk-minchul/AdaFace #127, huggingface/diffusers #6482, bitsandbytes-foundation/bitsandbytes #945, ultralytics/ultralytics #1253",
	},

	decide: decideOC1011,
}

func decideOC1011(r *Run) Outcome {
	hits := r.errorHits("OC1011", "The scaler was to unscale gradients that are stored in FP16.")
	judged := false
	for _, s := range r.Stories {
		for _, format := range s.Dtypes {
			judged = judged || format == "float32"
		}
		for i, e := range s.Events {
			if e.Kind != step.Unscale || e.Inferred {
				continue
			}
			judged = true
			lost, stored := s.Flushed(i)
			if lost == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("Gradients stored in FP16 were unscaled in place: %d of %d elements that were not zero became zero.", lost, stored),
						[]Evidence{{"elements flushed to zero", lost}, {"elements that were not zero", stored}}
				},
			})
		}
	}
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	return decided(hits, judged)
}
