package check

import "fmt"

var oc5003 = Rule{
	ID:       "OC5003",
	Title:    "the logged loss divided by another step's scale",
	Severity: Warning,

	Meaning: `The loss was logged as the scaled loss divided by the scale, and the scale was read too
late. After update() scaler.get_scale() is that of the next step. Mostly it is the same
number; on a growth the log shows half of the loss, on an overflow twice the loss.

In a measured run whose scale grew every 3 steps a loss of 6.145 was logged as 3.072,
and on an overflow 17443 as 34885. With PyTorch's default interval a growth comes once
in 2000 clean steps, so it looks like noise or like a good batch, and whatever picks
the best loss may act on it.

Training is right, since the gradients are divided elsewhere. A loss that is not
divided at all shows at least: one report had 5000 to 6000000.`,

	Wrong: `import torch
from torch.utils.tensorboard import SummaryWriter

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
log = SummaryWriter()

for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    log.add_scalar("loss", loss.item() / scaler.get_scale(), step)`,

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
    scaler.step(optimizer)
    scaler.update()
    log.add_scalar("loss", loss.item(), step)`,

	Mend: []Remedy{
		{"PyTorch", `Keep the scaled loss apart and log the loss itself; there is nothing to divide. Where
only the scaled one is at hand, read scaler.get_scale() before update().`},
		{"JAX", `The value_and_grad of flax's DynamicScale returns a loss that it has divided by the
scale it used. With jmp unscale before you adjust.`},
	},

	Needs: "a logged loss beside the loss that was scaled, on steps where the scale moved",

	Sources: []string{
		"facebookresearch/fairchem PR #617: get_scale() read after the update, the logged loss off by a factor of 2",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, get_scale: the current scale, which update() changes",
		"fastai/fastai #3048: the loss stayed scaled, 5000 to 6000000 in the log",
	},

	decide: decideOC5003,
}

func decideOC5003(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	logged, hits := 0, []hit(nil)
	for _, s := range r.Stories {
		for _, l := range s.LoggedLosses() {
			logged++
			if !l.OtherScale {
				continue
			}
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: s.Events[l.Event].Attempt, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The logged loss %s is the scaled loss divided by another step's scale: the loss was %s.", num(l.Value), num(l.True)),
						[]Evidence{{"logged", l.Value}, {"loss", l.True}, {"ratio", l.Value / l.True}}
				},
			})
		}
	}
	if logged == 0 {
		return r.lacks("no loss is logged")
	}
	return decided(hits, true)
}
