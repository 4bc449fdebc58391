package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4010 = Rule{
	ID:       "OC4010",
	Title:    "a parameter that the optimizer steps was left out of its unscale",
	Severity: Error,

	Meaning: `The optimizer steps more than was unscaled. The usual stranger lives outside of the
model: a learnt temperature, the weight of a loss term, a classifier inside the
criterion. A division over model.parameters() does not reach it, so its gradient
arrives S times too large.

A clip by global norm passes the harm on to all others. In a measured run a small
network had one learnt loss weight, a single number. At S = 65536 the norm at the first
step was 161519 instead of 2.50, and the clip at 1.0 left the network 6e-6 of its
gradient. After 200 steps the squared error was 6.16 against 1.48 under SGD with
momentum, 1.12 against 0.61 under AdamW. The loss does fall under AdamW, so nothing
looks broken; without a clip SGD throws the one parameter about and Adam hides the
factor.

GradScaler divides whatever stands in the optimizer's groups. So this takes a division
by hand, a wrapper with its own list, or gradients that came after unscale_: from
another backward, or in a group added between unscale_ and step. A finiteness check
over the same short list misses an overflow there too.`,

	Wrong: `import torch

params = [*model.parameters(), *loss_fn.parameters()]  # loss_fn has a learnt weight
optimizer = torch.optim.AdamW(params, lr=3e-4)
scale = 4096.0

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
    if torch.isfinite(norm):
        optimizer.step()`,

	Right: `import torch

params = [*model.parameters(), *loss_fn.parameters()]  # loss_fn has a learnt weight
optimizer = torch.optim.AdamW(params, lr=3e-4)
scale = 4096.0

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in params:
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
    if torch.isfinite(norm):
        optimizer.step()`,

	Mend: []Remedy{
		{"PyTorch", `Let GradScaler divide: unscale_(optimizer) covers all that the optimizer steps. By hand
take the list from the optimizer, [p for g in optimizer.param_groups for p in
g["params"]]. Run no backward that fills its parameters between unscale_ and step.
Where one clip covers two optimizers, unscale both before it.`},
	},

	Needs: "gradients before and after the unscale, for all parameters that the optimizer steps",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, _unscale_grads_: walks the parameter groups of the optimizer",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, step: does not unscale again after unscale_",
	},

	decide: decideOC4010,
}

func decideOC4010(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		left, scale, known := leftOut(c)
		judged = judged || known
		if left.Empty() {
			return
		}
		hits = append(hits, hit{
			story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("%s still carried the loss scale %s when the optimizer stepped; its other parameters had been unscaled.", tensors(s.Universe.Members(left)), num(scale)),
					[]Evidence{{"tensors left out", left.Len()}, {"loss scale", scale}}
			},
		})
	})
	return decided(hits, judged)
}

// leftOut are the parameters of a step that carry the scale beside others that
// were unscaled.
func leftOut(c *step.Consumption) (left step.Set, scale float64, known bool) {
	unscaled := false
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.State != step.Filled || p.Claimed {
			continue
		}
		known = known || p.Unit().Known()
		if s, ok := p.Unit().IsScale(); ok {
			left, scale = left.Or(p.On), s
		}
		unscaled = unscaled || p.Unit().IsOne()
	}
	if !unscaled {
		return nil, 0, known
	}
	return left, scale, known
}
