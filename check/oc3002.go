package check

import (
	"maps"
	"slices"

	"ordercheck/step"
)

var oc3002 = Rule{
	ID:       "OC3002",
	Title:    "a dynamic scale not updated after a verdict",
	Severity: Error,

	Meaning: `A dynamic scale lives on being told what happened: down after an overflow, up after a
long run of clean steps. Here a verdict was taken, by unscale_ or by step, and the
scale never heard of it. Either update() is missing, or a path leaves the iteration
between the two; "if norm > limit: continue" is the usual one.

After an overflow the scale then stays where it overflowed, and the batches that follow
overflow there as well. In a measured loop that scaled by hand and left the iteration
in front of its own halving, 185 of 200 steps were skipped; with the halving reached it
was 29. Where nothing overflows the loss is smaller and harder to see: gradients shrink
in training, the scale does not follow them up, and more of them are flushed to zero.

PyTorch does notice, but one iteration late and at a call that is right: "unscale_()
has already been called on this optimizer since the last update()." or "step() has
already been called since the last update()." And a guard like the one below waits for
its first large norm: in a measured run it left the iteration at step 4, and step 5
raised. In a long run that may be days in. A scale of your own, or a new scale that is
returned and dropped in JAX, says nothing at all. A constant scale has nothing to be
told.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm > 10.0:
        continue  # leaves out the step, and the update with it
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
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm <= 10.0:
        scaler.step(optimizer)
    scaler.update()  # always: it acts on what unscale_ found`,

	Mend: []Remedy{
		{"PyTorch", `Let every path on which unscale_ or step ran end in scaler.update(). Leave out the step
if you must, never the update: the verdict of unscale_ is enough for it, and it halves
the scale if what your guard has caught was an overflow. A batch that you give up
before unscale_ needs no update, but its gradients have to be cleared.`},
		{"Accelerate", `The update is part of the prepared optimizer's step. If you leave that step out after
accelerator.clip_grad_norm_, which has unscaled, call accelerator.scaler.update() in
its place (in FP16; otherwise there is no scaler).`},
		{"Lightning", `Unscale, step and update are one call, the step of the optimizer that self.optimizers()
returns. With manual optimization leave it out as a whole or not at all.`},
		{"JAX", `jmp's adjust and flax's value_and_grad return a new scale and change nothing. Bind it
to the name that the next step uses, whether the gradients were finite or not.`},
	},

	Needs: "the order of unscale, step and update calls of one scaler, or its verdicts and the scale that multiplied the next loss",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py: "unscale_() has already been called on this optimizer since the last update().", "step() has already been called since the last update()."`,
		"Haian-Jin/LVSM PR #19: update() ran only together with step(), which a too large norm left out",
		"espnet/espnet PR #2362: no update() after a NaN step, and the next unscale_ raised",
		"Azure/MS-AMP PR #45: update() missing; microsoft/onnxruntime PR #4833: dynamic scale never updated",
	},

	decide: decideOC3002,
}

func decideOC3002(r *Run) Outcome {
	hits := r.errorHits("OC3002", "The scale had not been updated since the last verdict.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	judged := false
	for _, s := range r.Stories {
		for _, id := range slices.Sorted(maps.Keys(r.Manifest.Scalers)) {
			if r.Manifest.Scalers[id].Policy != "torch.GradScaler" {
				continue // the script's own, or a constant
			}
			still, fell := s.Unmoved(id)
			judged = judged || fell > 0
			if fell > 0 || s.Gaps {
				continue
			}
			for _, i := range still {
				e := s.Events[i]
				hits = append(hits, hit{
					story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						return "An overflow was found here, and the next loss was multiplied by the same scale: nothing had updated it.",
							[]Evidence{{"overflows after which the scale stayed", len(still)}}
					},
				})
			}
		}
	}
	if len(hits) == 0 && !judged && !r.has(step.UpdateScale, nil) {
		return noData("")
	}
	return decided(hits, judged)
}
