package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1009 = Rule{
	ID:       "OC1009",
	Title:    "the optimizer stepped on gradients that were zeroed after the backward",
	Severity: Error,

	Meaning: `A zero_grad stands between the backward and the step that was to use its gradients.
What follows depends on its argument and on where the unscale stands, and in one case
only are you told.

zero_grad() sets gradients to None. A scaler.step that has not been preceded by
unscale_ finds nothing to check and raises: "No inf checks were recorded for this
optimizer." With unscale_ in front, for a clip, the check is on record, the optimizer
runs over parameters without gradients and does nothing: in a measured run every
parameter was bit for bit the one of the start after 24 steps. Filled with zeros
instead, by set_to_none=False, m and v decay, the step counts, and weight decay goes
on pulling, 0.07 % in 22 steps at lr = 3e-3. Zeros in front of the unscale also pass
the check, so no overflow is seen any more and the scale doubles for ever: 2^20 after
those 24 steps, at a growth interval of 5.

Loss and norm are logged before it happens and look alive, 3.5 and 1.2 with the
batches' ups and downs. The model learns nothing, and the learning rate gets the
blame. With two optimizers it can be one half that stands still: model.zero_grad(), or
the first one's zero_grad() over shared parameters, clears what the second was to
step on.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.zero_grad()  # the step below finds no gradients, and says nothing
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
		{"PyTorch", `Clear in front of the first backward of a step or behind scaler.step, nowhere in
between. With several optimizers call zero_grad of the one whose backward follows, and
not model.zero_grad().`},
		{"Accelerate", `zero_grad of a prepared optimizer acts only on the micro-batch that steps. Put it
behind optimizer.step(): at the head of an accumulate block it would clear what the
earlier micro-batches have summed.`},
	},

	Needs: "the order of backward, zero_grad, unscale and step calls of one optimizer, or the gradients that the step read",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py, step: "No inf checks were recorded for this optimizer."`,
		"PyTorch 2.15.0, torch/optim/optimizer.py, zero_grad: set_to_none is True by default",
		"huggingface/accelerate #328, #357: that text where no gradient reached the optimizer's parameters",
		"IDEA-Research/DN-DETR #18: zero_grad in front of the step in the training engine",
		"Accelerate 1.15.0, accelerate/optimizer.py, zero_grad",
	},

	Explains: []string{"OC2002", "OC2003"},

	decide: decideOC1009,
}

func decideOC1009(r *Run) Outcome {
	hits := r.errorHits("OC1009", "The optimizer was to step on gradients that had been zeroed, so that there was nothing to check.")
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		judged = true
		for _, b := range c.Broken {
			if b.Rule != "OC1009" || s.OverflowedAt(c.Attempt, b.On) {
				continue // zeroed because they had overflowed: a skip of the script's own
			}
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The gradients were zeroed after the backward that filled them, and the optimizer stepped on zeros: only decay and old moments move the parameters.",
						[]Evidence{{"norm of the gradients that were stepped", s.NormOf(s.Events[c.Event].Before, b.On).Norm()}}
				},
			})
		}
	})
	return decided(hits, judged)
}
