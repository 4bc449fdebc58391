package check

import "fmt"

var oc5002 = Rule{
	ID:       "OC5002",
	Title:    "the logged norm is the one after clipping, or stale from a skipped step",
	Severity: Warning,

	Meaning: `A norm is logged to see what the data does to the gradient. After a clip at 1.0 it
cannot show that: norms of 1.5, 5 and 70 all leave the clip as 1.0 within a millionth.
The curve is flat at the threshold, an outlier batch looks like any other, and neither
the rate of clipping nor the fit of the threshold can be read from it.

The other form is a number from another step. An overflow has no finite norm, and some
code then logs the last one it had: DeepSpeed kept it in _global_grad_norm. The curve
has no gap where the run had one. Right is inf, nan or nothing.

Neither changes the training. Both mislead when the log is all that is left: only the
norm before the clip tells a run that diverged behind a flat line from one that was
quiet. A logged norm above the threshold is no fault but the norm before the clip, as
it should be.`,

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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    log.add_scalar("grad_norm", norm, step)  # 1.0, and 1.0, and 1.0
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
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    log.add_scalar("grad_norm", norm, step)  # before the clip
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Log what clip_grad_norm_ returns: the norm before the clip. On a skipped step log it as
the inf or nan that it is. For the effect of the clip log min(1, max_norm / norm)
beside it.`},
		{"Lightning", `Log in on_before_optimizer_step, which runs before the clip.`},
		{"DeepSpeed", `Log engine.get_global_grad_norm(), the norm before the clip, and leave it out on steps
that were skipped.`},
		{"JAX", `Take optax.global_norm of the gradients before update. What the chain returns has been
clipped and more.`},
	},

	Needs: "a logged norm beside the clip's norm or the gradients of its step, and which steps were skipped",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py, clip_grad_norm_: returns the norm before clipping",
		"mosaicml/composer, composer/callbacks/optimizer_monitor.py: l2_norm/grad is read at the end of the batch, after the clip",
		"DeepSpeed 0.16.5, deepspeed/runtime/fp16 and deepspeed/runtime/zero, _global_grad_norm: keeps its value on a skipped step",
		"deepspeedai/DeepSpeed #7220: a norm before the clip taken for a clip that does not work",
	},

	decide: decideOC5002,
}

func decideOC5002(r *Run) Outcome {
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedNorms() {
			logged++
			if !l.Clipped {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged norm %s is the one after the clip; before it the norm was %s, and that is what tells a spike.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"norm before the clip", l.True}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no norm is logged")
	}
	return decided(hits, true)
}
