package check

import "fmt"

var oc5001 = Rule{
	ID:       "OC5001",
	Title:    "the logged norm still carries the loss scale",
	Severity: Warning,

	Meaning: `The logged number is S times the norm of the gradient. Training may well be right:
somebody looked between backward and unscale. At S = 65536 a norm of 1.0 is logged as
65536, and when the scale doubles the curve jumps to twice its height although nothing
changed.

The cost lies in what is concluded from it. Users report exploding gradients, or a clip
at 1.0 that does not work, because a histogram shows more than 10000. Whoever reads a
threshold off such a curve sets one that never acts, and a true spike hides among jumps
by two.

Hooks are a common source. wandb.watch and Lightning's on_after_backward run before the
unscale; with a fused optimizer every hook before the step does, since the division
happens inside the kernel. Measuring on scaled gradients is no fault, only logging the
number as if it were true.`,

	Wrong: `import torch
from torch.utils.tensorboard import SummaryWriter

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
log = SummaryWriter()

for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    log.add_scalar("grad_norm", norm, step)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
from torch.utils.tensorboard import SummaryWriter

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
log = SummaryWriter()

for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    log.add_scalar("grad_norm", norm, step)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Log what clip_grad_norm_ returns after scaler.unscale_, or divide the norm by
scaler.get_scale() before update(). In place of wandb.watch log histograms of your own
after unscale_. Log the scale beside the norm: it makes such jumps readable.`},
		{"Accelerate", `Log what accelerator.clip_grad_norm_ returns; it unscales first.`},
		{"Lightning", `Log in on_before_optimizer_step. With a fused optimizer the gradients are scaled there
too: divide the norm by the scaler's scale.`},
	},

	Needs: "a logged norm beside the norm or the gradients of its step and the scale of its loss",

	Sources: []string{
		"wandb/wandb #9092, #4369, #4301: histograms taken in a backward hook",
		"Lightning-AI/pytorch-lightning #11407, #4151; PR #21720: gradient statistics with fused optimizers",
		"deepspeedai/DeepSpeed PR #8588: get_global_grad_norm() gave 128.0 for 1.0 in the unfused FP16 path",
		"HorizonRobotics/alf PR #1672: magnitudes jumped with the scale; languini-kitchen/languini-kitchen PR #7",
	},

	decide: decideOC5001,
}

func decideOC5001(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedNorms() {
			logged++
			if !l.Scaled {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged norm %s is that of the scaled gradients: the true norm is %s.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"true norm", l.True}, {"loss scale", l.Scale}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no norm is logged")
	}
	return decided(hits, true)
}
