package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6004 = Rule{
	ID:       "OC6004",
	Title:    "some stepped parameters are never clipped",
	Severity: Advice,

	Meaning: `The optimizer steps parameters that no clip ever covered. They are not in the norm, so
a spike in them triggers nothing, and they are not multiplied, so it arrives at full
size. The log shows a bounded norm all the while. Under Adam one gradient of 50 times
the usual size keeps v above twice its quiet value for about 900 steps.

It happens where clip and optimizer have lists of their own: a clip over
model.parameters() and an optimizer that also has those of a criterion, a clip over a
submodule, a group that was added when a layer was unfrozen.

It is no problem if it is meant: a scalar such as a temperature with a bound of its
own, or a part whose updates are limited elsewhere. Parameters with a separate clip and
threshold count as clipped; only those without any clip in the whole record are named.`,

	Wrong: `import torch

params = [*model.parameters(), *loss_fn.parameters()]  # loss_fn has a learnt weight
optimizer = torch.optim.AdamW(params, lr=3e-4)
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

	Right: `import torch

params = [*model.parameters(), *loss_fn.parameters()]  # loss_fn has a learnt weight
optimizer = torch.optim.AdamW(params, lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Take the clip's list from the optimizer: [p for g in optimizer.param_groups for p in
g["params"]]. With FP16 parameters and float32 copies clip the copies, which are what
is stepped. Give the rest a clip of its own, or leave the exception if it is meant.`},
		{"JAX", `optax.clip_by_global_norm covers what its chain is given; under optax.masked the rest
has no clip.`},
	},

	Needs: "the tensors that each clip covers and those that the optimizer steps",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: only the given parameters enter the norm",
		"NVIDIA/apex #195: the clip named a submodule",
		"Lightning-AI/pytorch-lightning #2556, fastai/fastai2 #528: model parameters and their float32 copies",
	},

	decide: decideOC6004,
}

func decideOC6004(r *Run) Outcome {
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for _, u := range s.NeverClipped() {
			judged = true
			if len(u.Names) == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: u.Event, attempt: s.Events[u.Event].Attempt, optimizer: u.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("%d of the %d parameters that this optimizer steps are in no clip: %s.", len(u.Names), u.All, tensors(u.Names)),
						[]Evidence{{"parameters never clipped", len(u.Names)}, {"parameters", u.All}}
				},
			})
		}
	}
	return decided(hits, judged)
}
