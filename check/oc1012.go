package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1012 = Rule{
	ID:       "OC1012",
	Title:    "the same gradients stepped twice",
	Severity: Error,

	Meaning: `An optimizer does not clear what it has read. A second step with no backward in
between moves the parameters along the same gradient again. For SGD that is twice the
learning rate, and more with momentum: at 0.9 the parameters had gone three times as
far after nine steps of a measured run. Adam puts one gradient into m and v twice and
counts two steps; AdamW had gone 1.99 times as far, and its loss even looked better,
5.64 against 5.99 mended.

Through the scaler PyTorch raises: "step() has already been called since the last
update()." What gets past it is optimizer.step() beside scaler.step(optimizer), a
parameter that two optimizers own, or an update() between the two steps. After that
one the scaler takes the gradients for new and divides them once more; the second step
is then mostly momentum, and the parameters of the same run had gone 1.3 times as far.

It ends with the first overflow. scaler.step skips, and the direct step behind it does
not know. In that run the overflow came at step 9, and all 1476 parameters were NaN.
What follows looks like a scale that cannot settle: it is halved on each step.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.step()  # the same gradients again, and Inf if there was one`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `One backward, one step: scaler.step(optimizer), and no optimizer.step() beside it, in
a callback or a hook either. If the script has a branch with a scaler and one without,
see that they exclude each other. Steps that are meant to be two, as in SAM, have a
backward each.`},
		{"Accelerate", `The step of the prepared optimizer goes through the scaler. Call neither scaler.step
nor the inner optimizer's step beside it.`},
		{"Lightning", `With automatic optimization the Trainer steps. If training_step is to call backward
and step itself, set self.automatic_optimization = False.`},
		{"DeepSpeed", `engine.step() steps the optimizer that it wraps; do not step that one as well.`},
	},

	Needs: "the order of backward and step calls of one optimizer, or its state before and after the second step",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py, step: "step() has already been called since the last update()."`,
		"IAHispano/Applio PR #860: optim_g.step() and optim_d.step() also called directly",
		"pytorch/vision PR #4874: after scaler.step and update a clip and a second optimizer.step()",
	},

	decide: decideOC1012,
}

func decideOC1012(r *Run) Outcome {
	hits := r.errorHits("OC1012", "The optimizer was to step a second time on gradients that it had already consumed.")
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		judged = true
		for _, b := range c.Broken {
			if b.Rule != "OC1012" {
				continue
			}
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The optimizer stepped on gradients that it had consumed before, and no backward had filled them again.", nil
				},
			})
		}
	})
	return decided(hits, judged)
}
