package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2001 = Rule{
	ID:       "OC2001",
	Title:    "an optimizer step that no finiteness verdict guards",
	Severity: Error,

	Meaning: `A scaled loss is made to overflow: FP16 ends at 65504, and a dynamic scale keeps
doubling until some gradient passes it. So the question before each step is whether
every gradient of this optimizer is finite, and the step has to depend on the answer.
Here nobody asked, or nobody listened.

Until the first overflow such a loop is exactly right, which is why short tests pass.
Then one Inf is enough. It enters Adam's m and v, Inf / Inf is NaN, the next forward
spreads the NaN, and neither m nor v can forget it: 0.9 times Inf is Inf. A clip in
between makes it worse. With an infinite norm its coefficient is 0, which turns every
Inf into NaN and every healthy gradient into 0; with a NaN norm everything becomes NaN
at once.

In a measured loop with a hand-made scale the first overflow came at step 9 of 24: the
loss was NaN from step 10 on, and at the end so were all 1476 parameters. In a series
of small models without the check, five runs of five ended in NaN, under SGD with
momentum as well as under AdamW. And where an ignored verdict still reaches the
scaler, the scale falls to its floor, which looks like a scaling problem and is none.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 65536.0

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # whatever came out of backward`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 65536.0

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()
    else:
        scale /= 2  # and nothing else moves`,

	Mend: []Remedy{
		{"PyTorch", `Use torch.amp.GradScaler: unscale_ (or scaler.step, if you do not call it) checks
every gradient of the optimizer, and scaler.step leaves the optimizer alone if one is
not finite. By hand, let the step depend on the norm over all parameters of the
optimizer: it is finite only if all of them are.`},
		{"Keras", `In a hand-written train step hand the scaled gradients to LossScaleOptimizer.apply,
which checks them. Dividing them yourself and calling the inner optimizer leaves the
check out.`},
		{"JAX", `Nothing skips for you. flax's value_and_grad returns is_fin: keep the old params and
opt_state with jnp.where where it is false. With jmp use all_finite and select_tree.
Or wrap the chain in optax.apply_if_finite.`},
	},

	Needs: "the verdict (found_inf) and the step of each optimizer, or gradients before and parameters after a step that overflowed",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, step: optimizer.step() is skipped to keep Inf and NaN out of the parameters",
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: error_if_nonfinite is False by default; pytorch/pytorch #46849",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: skip the update on overflow",
		"IAHispano/Applio PR #860: a direct optimizer.step() bypassed both the unscale and the skip",
	},

	Explains: []string{"OC2002"},

	Tensors: true,

	decide: decideOC2001,
}

func decideOC2001(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	steps, unguarded := 0, 0
	past := 0 // steps past the scaler: its verdict was taken, and nothing shows that somebody reads it
	lies := map[*evidence.Story]map[int]bool{}
	for _, s := range r.Stories {
		lies[s] = contradicted(s)
	}
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		steps++
		if e := s.Events[c.Event]; e.Via == "optimizer" && s.ReliesOnCalls() && !s.HandScale {
			past++
		}
	})
	r.eachBreach("OC2001", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		seen := s.Taken(c, p)
		ignored := p.Verdict.NonFinite && !lies[s][p.Verdict.Event]
		if p.Verdict.Taken && !ignored && !seen.NonFinite {
			return // the numbers contradict the verdict: the gradients were finite
		}
		unguarded++
		if !ignored && (!seen.NonFinite || s.Guarded(c.Optimizer, p.On)) {
			return // a check that no call shows may stand there
		}
		hits = append(hits, hit{
			story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				if ignored {
					return fmt.Sprintf("The verdict on these gradients was that they are not finite%s, and the optimizer stepped all the same.",
							atLine(s, p.Verdict.Event)),
						[]Evidence{{"found_inf", true}}
				}
				return "No finiteness verdict was taken between backward and this step, and gradients that are not finite were stepped: " + seen.How + ".", counted(seen)
			},
		})
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case steps > 0 && unguarded+past == 0:
		return passed()
	case steps > 0 && r.guarded():
		return passed()
	}
	return noData("")
}
