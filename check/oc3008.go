package check

import "ordercheck/step"

var oc3008 = Rule{
	ID:       "OC3008",
	Title:    "the scale updated without a finiteness verdict since the last update",
	Severity: Error,

	Meaning: `An update answers a question: was everything finite since the last one? Here nobody had
asked. No unscale_, no step of the scaler and no check of another kind lies between
this update and the one before.

A policy that is not told counts blindly. Each iteration passes for a clean one, so the
scale grows by the clock and never falls. FP16 ends at 65504: at 65536 no gradient
element above 1 fits, and each doubling halves that. In a measured loop whose scale
doubled every 5 iterations, overflow or not, 11 of 100 steps were applied, the last of
them was step 13, and at the end the scale was 6.9e10.

PyTorch does not let it pass: "No inf checks were recorded prior to update." The text
names what is missing and not what is wrong. A common cause is an update() outside of
the "if" that guards the step: then the first micro-batch raises. Or the step went
round the scaler (OC1003), or the update came before the unscale (OC3004), and that is
the root. Silent are scalers of your own and wrappers that answer for you. And with two
optimizers one verdict is enough for PyTorch: it does not miss that of the other.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    if i % 4 == 3:
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()  # three times of four nobody has looked`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for i, (x, y) in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    if i % 4 == 3:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()`,

	Mend: []Remedy{
		{"PyTorch", `Put scaler.update() behind scaler.step() and under the same condition. On a batch that
you leave out before its backward, call neither. update(new_scale) is an order of yours
and needs no verdict, but it throws away those that were taken. In a scaler of your own
make the verdict an argument of update that has no default.`},
		{"JAX", `Hand jmp's adjust what jmp.all_finite says of this step's gradients, after they were
combined over the devices, and not a constant.`},
	},

	Needs: "the order of unscale, check, step and update calls of one scaler",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py, update: "No inf checks were recorded prior to update."`,
		"rohitg00/ai-engineering-from-scratch PR #208: update() on a step where the loss was not finite and nothing was scaled",
	},

	decide: decideOC3008,
}

func decideOC3008(r *Run) Outcome {
	hits := r.errorHits("OC3008", "The scale was to be updated without a finiteness verdict since the last update.")
	if len(hits) == 0 && (!r.scaled() || !r.has(step.UpdateScale, nil)) {
		return r.lacks("no call updates the scale")
	}
	judged, gaps := false, false
	for _, s := range r.Stories {
		gaps = gaps || s.Gaps
		blind, seeing := s.BlindUpdates()
		judged = judged || seeing > 0
		if seeing == 0 {
			continue // verdicts were not recorded
		}
		for _, i := range blind {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The scale was updated although no verdict had been taken since the last update: an overflow of this step would count as a clean one.",
						[]Evidence{{"scale before", e.Previous.Value}, {"scale after", e.Scale.Value}}
				},
			})
		}
	}
	if len(hits) == 0 && gaps {
		return noData("")
	}
	return decided(hits, judged)
}
