package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1004 = Rule{
	ID:       "OC1004",
	Title:    "gradients multiplied by the loss scale where they should be divided by it",
	Severity: Error,

	Meaning: `Gradients that carry the loss scale S are to be multiplied by 1/S. Here they were
multiplied by S: at S = 65536 a true norm of 1 arrives as 4.29e9. It takes one slip:
mul_ for div_, scale where its inverse was meant, or a grad_scale of 1/S for a fused
optimizer, which divides by what it is handed.

SGD shows it at once; in a measured run its second loss was NaN. AdamW divides m by
sqrt(v), and S squared cancels with the rest. After 24 steps it stood at a loss of
5.32, 5.24 mended, and with a clip at 1.0 in front of the step at 5.21 against 5.19: a
clip turns the fault into a step of norm 1.0, whatever the batch had to say. Only a
logged norm gives it away, 3.8e9 where the true one is 0.89.

What stays is a state that no mended loop can go on from, m 4.3e9 and v 1.8e19 times
too large, an eps and a coupled weight decay without effect, and gradients that grow
fourfold when the scale doubles. By Adam's arithmetic, without a clip, the update then
swells to 3.2 times its size within 26 steps and needs some 1700 to come back to
within 10 % (beta1 = 0.9, beta2 = 0.999).`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 65536.0
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.mul_(scale)  # now 4.29e9 times the gradient
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()
    else:
        scale /= 2`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 65536.0
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()
    else:
        scale /= 2`,

	Mend: []Remedy{
		{"PyTorch", `Let scaler.unscale_(optimizer) divide: it takes the reciprocal itself. By hand write
p.grad.div_(scale), or call the factor what it is, inv_scale = 1.0 / scale. A fused
optimizer whose grad_scale you set yourself wants the scale, not its inverse. If you
go on from a checkpoint of the broken run, start the optimizer's state afresh.`},
		{"JAX", `With jmp call loss_scale.unscale(grads). loss_scale.scale takes a tree of gradients as
well, and does not complain.`},
	},

	Needs: "gradients before and after the multiplication, or the optimizer's state before and after a step beside a known gradient",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: the reciprocal of the scale is taken first, then multiplied into the gradients",
		"PyTorch 2.15.0, torch/optim/adam.py, _fused_adam: grad_scale goes to the kernel, which divides by it",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: weight gradients are to be unscaled before the update",
		"jmp 0.0.4, jmp/_src/loss_scale.py: scale and unscale accept the same trees",
	},

	decide: decideOC1004,
}

func decideOC1004(r *Run) Outcome {
	return r.breachRule("OC1004", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) (string, []Evidence) {
		k, scale, _ := b.Unit.Exponent()
		return fmt.Sprintf("The gradients were multiplied by the loss scale %s where they should have been divided by it: the optimizer took %s^%d times the gradient.", num(scale), num(scale), k),
			[]Evidence{{"loss scale", scale}, {"power of it in the gradients", k}}
	})
}
