package check

import "ordercheck/step"

var oc2012 = Rule{
	ID:       "OC2012",
	Title:    "a step that was applied did not move its schedule",
	Severity: Warning,

	Meaning: `The loop holds its schedule still on skipped steps, and asks the scale whether there
was one. A scale that has changed is taken for a skip. But it changes for two reasons:
it falls after an overflow, and it grows after a run of good steps. On each growth a
step was applied, and the schedule stands still.

At the default growth interval that is one step in 2000, and hardly worth a word. With
a short interval it is not: in a measured run with an interval of 5 the schedule
counted 42 of 52 applied steps. A warm-up then lasts a quarter longer, a cosine does
not come down to its end, and the learning rate has come to depend on the history of
the scale. It is a warning, because the damage is as small as growth is rare.

Nobody sees it, for a learning rate that lags by a few steps looks like any other, and
the count that would tell is in the optimizer's state: after n applied steps Adam's
step is n, and so should the schedule's be.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10000)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() == before:  # false when the scale grows, too
        scheduler.step()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10000)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()`,

	Mend: []Remedy{
		{"PyTorch", `Ask whether the scale has fallen: scaler.get_scale() < before is a skip, everything
else a step. A scale that you set yourself with update(new_scale) says nothing about
the step at all.`},
		{"Accelerate", `Step the scheduler that accelerator.prepare returns, or ask the prepared optimizer's
step_was_skipped. Neither looks at the scale.`},
		{"DeepSpeed", `Ask engine.was_step_applied(). With hysteresis a skip may leave the scale as it was,
and there the comparison with < is wrong as well.`},
	},

	Needs: "the schedule's learning rate or count before and after a step that was applied",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, update: growth_factor after growth_interval good steps, backoff_factor after an overflow",
		"huggingface/transformers PR #11144: described as comparing the scale before and after and taking a change for a skip",
		"WatChMaL/WatChMaL PR #106: the schedule moves if the scale has not decreased",
		"pytorch/pytorch #67590, #152279: scaler.step does not tell whether it skipped",
	},

	decide: decideOC2012,
}

func decideOC2012(r *Run) Outcome {
	if !r.has(step.Schedule, func(e *step.Event) bool { return e.Attempt.Known }) {
		return r.lacks("no schedule is recorded")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		still, moved := s.UnscheduledSteps()
		judged = judged || moved > 0
		for _, i := range still {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The step was applied and its schedule did not move, as it did at the other steps: the scale grew here, and a script that compares scales by inequality takes that for a skip.",
						[]Evidence{{"applied steps without their schedule", len(still)}, {"with it", moved}}
				},
			})
		}
	}
	return decided(hits, judged)
}
