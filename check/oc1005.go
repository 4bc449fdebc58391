package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1005 = Rule{
	ID:       "OC1005",
	Title:    "gradients unscaled, or a threshold scaled, by another scale than the loss",
	Severity: Error,

	Meaning: `Gradients carry the scale that multiplied their loss, and only that one turns them
into true gradients again. Here another was used: one that was read before the loop
and kept, the one that update() has set in the meantime, that of a second scaler. Off
by one growth, a true gradient of 1 arrives as 0.5; off by one overflow, as 2. A
threshold on scaled gradients that is multiplied by the wrong scale is off by the same
factor.

It starts out right. The two scales agree until the first overflow or the first 2000
clean steps, so no short test fails. A divisor that was kept then drifts away for
good: eight overflows later the gradient arrives as 1/256. In a measured run with a
growth interval of 5 a threshold of max_norm times the first scale counted for half on
7 steps of 24, and the optimizer got down to half of its gradient. In a GAN whose
update() stood between two scaled losses and the second step, 9 of 24 generator steps
were divided by another scale than theirs: half the gradient after a growth, twice
after an overflow of the discriminator.

For SGD that is another learning rate for those steps. Adam would cancel a factor that
stayed, not one that comes and goes with the scale. And an active clip behind the
division makes the norm right again, so that only unclipped steps are wrong. No curve
shows any of it.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
max_norm = 1.0 * scaler.get_scale()  # 65536, for the rest of the run

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    max_norm = 1.0 * scaler.get_scale()  # the scale that this loss was multiplied by
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Divide by scaler.unscale_(optimizer), which takes the current scale, let no update()
stand between the backward and that call, and keep no copy of the scale. If you work
on scaled gradients, read scaler.get_scale() between the backward and the update of
the same step. With two scalers, unscale, step and update each optimizer by the scaler
that scaled its loss.`},
		{"Accelerate", `The step of a prepared optimizer updates the one scaler that all share. With two
losses run the second accelerator.backward after the first optimizer's step, not
before it.`},
		{"Lightning", `In FP16 the step of an optimizer updates the scale. In manual optimization call
manual_backward and step for one optimizer, then both for the next.`},
		{"JAX", `With jmp unscale by the loss_scale that scaled the loss, and only then bind the result
of adjust to that name.`},
	},

	Needs: "the scale that multiplied the loss and the one that was divided by, or gradients before and after the division on a step whose scale moved",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py: scale and unscale_ both take the current scale; which one a loss was multiplied by is kept nowhere",
		"NVIDIA-NeMo/Megatron-Bridge PR #5591: a scaler for each part of a model under one loss; after an overflow in one part the scales were 4 and 8",
		"huggingface/accelerate #439: the scale updated by the step of the first of two optimizers",
		"deepspeedai/DeepSpeed PR #8588: divided by the grown scale, true gradient 1, gradient used 0.5 (a defect of the framework)",
	},

	decide: decideOC1005,
}

func decideOC1005(r *Run) Outcome {
	return r.breachRule("OC1005", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) (string, []Evidence) {
		carried, divided := b.Unit.Scales()
		return fmt.Sprintf("The loss was multiplied by the scale %s and the gradients were divided by %s: the optimizer took %s times the gradient.",
				num(carried), num(divided), num(carried/divided)),
			[]Evidence{{"scale that the loss was multiplied by", carried}, {"scale that the gradients were divided by", divided}, {"the gradient is too large by", carried / divided}}
	})
}
