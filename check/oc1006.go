package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1006 = Rule{
	ID:       "OC1006",
	Title:    "a clip with nothing to clip: before backward, or on gradients already zeroed or consumed",
	Severity: Error,

	Meaning: `A clip acts on the gradients that are there when it is called. Before backward there
are none, if zero_grad has removed them, or there are those of the last step, which
the optimizer has read. clip_grad_norm_ then changes nothing that anyone will use,
returns a norm and raises nothing. The run trains without clipping.

The log may look perfect. In a measured run with the clip in front of zero_grad it
returned 0.893, 0.864, 0.880 and so on: the true norms before clipping, every one of
them right, and every one a step late. Meanwhile 13 of the 24 steps had a norm above
the threshold of 1.0, the largest 3.84, and the optimizer got all of it. With the clip
behind zero_grad there is one sign, if you look: the norm is 0.0 on every step. It
does not matter whether zero_grad has set the gradients to None or to zero.

What it costs is what no clipping costs, and it is due at the first spike. With
accumulation it is worse than nothing: the clip shortens what the earlier
micro-batches have left in the sum, and the last one arrives in full.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # no gradient yet: 0.0
    scaler.scale(loss).backward()
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Clip between the last backward and scaler.step, with scaler.unscale_(optimizer) in
front of it: there the gradients still carry the scale. A log whose norm is exactly
0.0, or that of the line above, says that the clip stands too early.`},
		{"Accelerate", `accelerator.clip_grad_norm_ stands behind accelerator.backward, under "if
accelerator.sync_gradients:".`},
		{"Lightning", `Not in training_step: with automatic optimization backward runs when it has returned.
Use Trainer(gradient_clip_val=1.0), or override configure_gradient_clipping, which is
called after backward and unscale.`},
	},

	Needs: "the order of zero_grad, backward, clip and step calls of one optimizer, or the gradients that the clip found",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: parameters without a gradient are left out; the norm of none is 0.0",
		"yandex-research/tabm #20: an example that clips before backward",
		"simchowitzlabpublic/nano-world-model PR #22: the clip inside Lightning's training_step; published checkpoints may be unclipped",
		"Cranial-XIX/FAMO #4: clip_grad_norm_ in front of loss.backward",
	},

	decide: decideOC1006,
}

func decideOC1006(r *Run) Outcome {
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		clipped := map[step.Maybe[int]]bool{} // attempts at which a clip met gradients
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			for j := range c.Parts {
				for _, w := range c.Parts[j].Words {
					if w.Op.Kind == step.Clip && !w.Op.Inert && c.Parts[j].State == step.Filled {
						clipped[c.Attempt], judged = true, true
					}
				}
			}
		}
		met := map[int]bool{}
		for _, b := range s.Machine.Loose {
			e := s.Events[b.Event]
			if b.Rule != "OC1006" || e.Inferred || !step.Is(e.Norm, 0) || s.OverflowedAt(e.Attempt, b.On) || clipped[e.Attempt] || met[b.Event] || !s.SteppedAt(e.Attempt) {
				continue
			}
			met[b.Event] = true
			hits = append(hits, hit{
				story: s, event: b.Event, attempt: e.Attempt, optimizer: s.OwnerOf(b.On), certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The clip at %s met gradients that had been zeroed and not filled again; the gradients that were stepped at this attempt were clipped by nothing.", num(e.Threshold.Value)),
						[]Evidence{{"threshold", e.Threshold.Value}, {"norm that the clip saw", e.Norm.Value}}
				},
			})
		}
	}
	return decided(hits, judged)
}
