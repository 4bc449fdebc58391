package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1007 = Rule{
	ID:       "OC1007",
	Title:    "gradients clipped after the optimizer step",
	Severity: Error,

	Meaning: `The optimizer has read its gradients when step returns. A clip behind it shortens a
gradient that nobody will read again: the next zero_grad throws it away. The run
trains without any clipping.

Everything you look at says otherwise. The call is there, max_norm is set, and because
scaler.step has already divided, even the logged norm is the true norm before
clipping. In a measured run the optimizer received up to 2.76 times the gradient that
the clip would have let through, with a norm log that was right on every step.

It costs nothing until the first spike. Then SGD takes the whole of it, and Adam
remembers: after one gradient of 50 times the usual size v stays above twice its quiet
value for about 900 steps (beta2 = 0.999), and the effective learning rate falls to
about half. Clipped to the usual size, the same spike leaves no such trace.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # too late
    scaler.update()`,

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
		{"PyTorch", `Move the clip between the last backward and scaler.step, and put
scaler.unscale_(optimizer) in front of it: up there the gradients still carry the
scale, and the clip without the unscale would be OC1001.`},
		{"Lightning", `Use Trainer(gradient_clip_val=1.0) or configure_gradient_clipping. A hook such as
on_train_batch_end runs after the step.`},
		{"JAX", `optax.chain works from left to right: optax.clip_by_global_norm stands before the
optimizer. Behind it, it clips the update and not the gradient.`},
	},

	Needs: "the order of the backward, clip and step calls of one optimizer, or gradients at the clip and what the step consumed",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: its example clips between unscale_ and step",
		"awslabs/graphstorm #1366: --max-grad-norm without effect in five trainers",
		"Lightning-AI/pytorch-lightning PR #10248: hook order step, log_grad_norm, clip",
		"APPFL/APPFL PR #198, VGraphRNN/VGRNN #4, taesunwhang/UMS-ResSel #3, jongwook/onsets-and-frames #24",
	},

	Tensors: true,

	decide: decideOC1007,
}

func decideOC1007(r *Run) Outcome {
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged, undecided := false, false
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			for j := range c.Parts {
				for _, w := range c.Parts[j].Words {
					judged = judged || w.Op.Kind == step.Clip && !w.Op.Inert
				}
			}
		}
		for _, b := range s.Machine.Loose {
			if b.Rule != "OC1007" {
				continue
			}
			now := active(s, &step.Part{On: b.On}, b.Event)
			judged, undecided = true, undecided || !now.Known || s.Windows
			if !step.Is(now, true) || s.Windows { // what looks like one window may be two
				continue // there was nothing to limit: the step was not changed by it
			}
			e := s.Events[b.Event]
			hits = append(hits, hit{
				story: s, event: b.Event, attempt: e.Attempt, optimizer: s.OwnerOf(b.On), certainty: Proven,
				tell: func() (string, []Evidence) {
					m := fmt.Sprintf("The clip at %s ran after the optimizer had already stepped: the update used the gradients as they were", num(e.Threshold.Value))
					ev := []Evidence{{"threshold", e.Threshold.Value}}
					if e.Norm.Known {
						m += ", with norm " + num(e.Norm.Value)
						ev = append(ev, Evidence{"norm", e.Norm.Value})
						if e.Rule == "global_norm" {
							ev = append(ev, Evidence{"coefficient that came too late", e.Threshold.Value / (e.Norm.Value + 1e-6)})
						}
					}
					return m + ".", ev
				},
			})
		}
	}
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case judged && !undecided:
		return passed()
	}
	return noData("")
}
