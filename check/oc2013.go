package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2013 = Rule{
	ID:       "OC2013",
	Title:    "an overflow hidden before the finiteness check",
	Severity: Error,

	Meaning: `An Inf among scaled gradients is a message: this scale is too high, drop this step. A
clamp, a nan_to_num or a clip by value in front of the check makes a number of it.
found_inf stays 0, the step is taken on what is left, and the scale, which has not
been told, goes on growing.

What is left depends on the call. nan_to_num with zeros removes the largest part of
the gradient and keeps the rest. With its defaults it writes 3.4e38, whose norm is Inf
in float32, and a norm clip behind it sets everything to 0. clamp and clip_grad_value_
make +-limit of Inf and leave NaN as it is.

In a measured run with zeros and a growth interval of 5 the first overflow was hidden
at step 11. At step 30 it was 7 % of all elements, and the cosine with the true
gradient was 0.40. From step 40 on nothing of the gradient was left; the optimizer ran
down on its momentum, with updates 100 times smaller at the end. 88 overflows in 100
steps were hidden, none was skipped, and the scale stood at 2^35. All that shows is a
loss that has levelled off, 1.88, mended 1.25, like that of a model that has learnt
what it can. At the default interval of 2000 the same course takes 400 times as many
steps: it begins when nobody looks any more.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for p in model.parameters():
        torch.nan_to_num_(p.grad, nan=0.0, posinf=0.0, neginf=0.0)
    scaler.unscale_(optimizer)  # finds nothing, ever
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
    scaler.step(optimizer)  # skips if unscale_ has found Inf or NaN
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Take the repair out and let scaler.step skip. A clip by value belongs behind unscale_,
whose verdict is then on record. A hook that limits gradients inside backward lets
what is not finite pass: torch.where(torch.isfinite(g), g.clamp(-limit, limit), g),
with a limit in scaled units. NaN that comes with every batch at any scale has its
cause in the forward pass or in the data, and is to be mended there.`},
		{"Lightning", `on_after_backward runs before the unscale and its check: repair nothing there.
gradient_clip_algorithm="value" acts behind the check and hides nothing.`},
		{"Keras", `clipvalue of the inner optimizer acts behind LossScaleOptimizer's check. Repair no
gradients before you hand them to its apply.`},
		{"JAX", `optax.apply_if_finite has to go around the whole chain. optax.chain(optax.zero_nans(),
optax.apply_if_finite(...)) checks what zero_nans has left, and optax.clip in that
place makes a number of Inf.`},
	},

	Needs: "gradients before and after what hid the overflow, or a found_inf of 0 beside gradients that were not finite",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py, clip_grad_value_: clamps, so that Inf becomes the limit and NaN stays",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: the check is made on the gradients as they are then",
		"optax 0.2.8, optax/transforms/_constraining.py, zero_nans; optax/transforms/_conditionality.py, apply_if_finite",
		"Keras 3.15.1, keras/src/optimizers/loss_scale_optimizer.py: check, division, then the inner optimizer's clip",
	},

	decide: decideOC2013,
}

func decideOC2013(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.State != step.Filled {
				continue
			}
			for _, w := range p.Words {
				m := s.Seen(w.Op.Event, w.Op.On, p.On)
				hidden := 0
				for _, change := range m {
					hidden += change.Hidden
				}
				judged = judged || len(m) > 0
				if hidden == 0 || m.After().Zero() && !s.ReliesOnCalls() || w.Op.Kind == step.ZeroGrad || w.Op.Kind == step.Backward || p.Verdict.Taken && p.Verdict.NonFinite {
					continue
				}
				hits = append(hits, hit{
					story: s, event: w.Op.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						what := "Code without a call"
						if e := s.Events[w.Op.Event]; !e.Inferred {
							what = "The " + e.Op
						}
						return fmt.Sprintf("%s turned %d gradients that were not finite into numbers before anything had looked: the overflow was not seen and the step was taken.", what, hidden),
							[]Evidence{{"elements not finite before", m.Before().NonFinite}, {"after", m.After().NonFinite}, {"largest after", m.After().Max}}
					},
				})
			}
		}
	})
	return decided(hits, judged)
}
