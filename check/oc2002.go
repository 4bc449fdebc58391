package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2002 = Rule{
	ID:       "OC2002",
	Title:    "a step applied although gradients of this optimizer were not finite",
	Severity: Error,

	Meaning: `The optimizer stepped on gradients that held Inf or NaN. Adam writes the Inf into m
and v, their quotient is NaN, and neither the parameter nor m and v recover from it.
One element is enough. At the next forward it reaches the loss, and from there every
gradient.

A partial step is no better. In a measured loop only the first parameter group was
checked and a bias overflowed at step 15: from step 16 on the loss was NaN. Now the
check did fire, so each step was skipped and the scale halved, 32768 at step 16, 256
at step 23. A single NaN among the parameters had ended the run, and the log looked
like a scale that could not settle.

There is nearly always a verdict somewhere, and it was not this one: the loss was
tested instead of the gradients (a loss of 3, multiplied by 65536, is finite in
float32; the FP16 gradients behind it need not be), the check ran before the last
micro-batch or after the step, it covered some of the tensors, one rank did not tell
the others, or a clip wrote NaN after the check had passed. Where the run shows which
of these it was, that rule is named as the root.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(loss):  # says nothing about the gradients
        optimizer.step()
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
    scaler.step(optimizer)  # asks what unscale_ found
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Let scaler.step(optimizer) decide, and change no gradient between unscale_ and step by
anything that can turn a finite number into Inf or NaN: the verdict is from unscale_
and is not taken again. A test of your own belongs after the last change, over all
parameters of the optimizer and, with several ranks, over all ranks. Parameters, m and
v that are NaN do not recover: go back to a checkpoint from before the step.`},
		{"JAX", `optax.apply_if_finite gives up after max_consecutive_errors and applies the update as
it is: set that number above the longest burst of overflows that your initial scale
can cause.`},
	},

	Needs: "gradients of the optimizer before a step that overflowed, or its found_inf, and whether the parameters changed",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, _maybe_opt_step: the step depends on the found_inf that unscale_ recorded",
		"pytorch/pytorch #99640, #96755: below scale 1 a gradient passes the test and overflows in the division",
		"Azure/MS-AMP PR #56: FP8 gradients left out of the finiteness check",
		"ooples/AiDotNet.Tensors PR #972: a fused step updated the tensors before the bad one",
		"optax 0.2.8, optax/transforms/_conditionality.py, apply_if_finite",
	},

	Explains: []string{"OC2003", "OC2006"},

	Tensors: true,

	decide: decideOC2002,
}

func decideOC2002(r *Run) Outcome {
	var hits []hit
	judged := false
	lies := map[*evidence.Story]map[int]bool{}
	for _, s := range r.Stories {
		lies[s] = contradicted(s)
	}
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied && !lies[s][c.Event] {
			judged = judged || c.Outcome == step.Skipped
			return
		}
		for i := range c.Parts {
			p := &c.Parts[i]
			seen := s.Taken(c, p)
			judged = judged || seen.Known || p.Verdict.Taken
			if seen.NonFinite {
				hits = append(hits, hit{
					story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						return "The optimizer stepped on gradients that are not finite: " + seen.How + atLine(s, seen.Event) + ".", counted(seen)
					},
				})
			}
		}
	})
	for _, s := range r.Stories {
		for _, d := range s.DamagedStates() {
			judged = true
			hits = append(hits, hit{
				story: s, event: d.Event, attempt: s.Events[d.Event].Attempt, optimizer: s.Events[d.Event].Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The optimizer's first moments hold numbers that are not finite, so it has taken such a gradient: %d of %d elements, first in %s.",
						d.Count, d.Elements, d.Tensor), []Evidence{{"elements that are not finite", d.Count}, {"elements", d.Elements}}
				},
			})
		}
	}
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case judged:
		return passed()
	}
	return noData("")
}

// counted are the elements that were looked at, if any were.
func counted(seen evidence.Finiteness) []Evidence {
	if seen.Elements == 0 {
		return nil
	}
	return []Evidence{{"elements that are not finite", seen.Count}, {"elements looked at", seen.Elements}}
}
