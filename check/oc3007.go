package check

import (
	"fmt"
	"math"
)

var oc3007 = Rule{
	ID:       "OC3007",
	Title:    "the scale reached infinity, or stays at a cap while gradients overflow",
	Severity: Error,

	Meaning: `A scale of Inf makes every loss Inf and every gradient Inf or NaN. All steps are
skipped from there on, and half of Inf is Inf: no backoff leads back. In a measured
BF16 loop whose float32 scale doubled after each clean step it was Inf after 112 steps,
and the other 188 of 300 were skipped. A policy that returns to its cap after each
backoff ends in the same way.

No sound FP16 loop gets there. Its gradients pass 65504 long before, and that lowers
the scale. So a scale this high says that nothing overflows any more, and the question
is why: the loss that is differentiated is not the scaled one (a Keras loop of that
kind reached 4.4e12 with no overflow), nothing is computed in FP16, all gradients are
zero, or a value clip turns each Inf into a finite number. A cap takes the symptom away
and leaves that.

Until the last step all looks well: factors of two cancel exactly, and the only sign is
a scale that knows one direction. From 65536 it is 112 doublings to 2^128, or 224000
clean steps at the default interval of 2000. PyTorch has refused the last one since 2.1
and stays at 2^127, flax stops at the largest float32. Keras 3, Megatron-LM, Paddle's
dynamic graph and ShardedGradScaler with its scale on a CPU have no such guard.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = torch.tensor(65536.0, device="cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):  # ends at 3.4e38, not at 65504
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()
    scale.mul_(2.0 if torch.isfinite(norm) else 0.5)`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):  # has the range of float32: no scale
        loss = loss_fn(model(x), y)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()`,

	Mend: []Remedy{
		{"PyTorch", `In BF16 and float32 leave the scale out. In FP16 find out first why nothing overflows,
then give a scale of your own a cap behind its growth: scale.clamp_(max=2.0**24).
GradScaler stays finite by itself, unless you hand it Inf: update(new_scale) takes what
it gets. A run that is stuck goes on after scaler.update(65536.0), called behind the
step; its parameters have not moved.`},
		{"Keras", `A train_step of your own has to differentiate optimizer.scale_loss(loss). Without it
the LossScaleOptimizer divides by a scale that was never applied, and nothing stops its
growth.`},
		{"JAX", `jmp keeps the old scale where the new one would not be finite, and flax stops at the
largest float32; older versions of flax had no bound.`},
	},

	Needs: "the scale and the skipped steps over many steps, from calls, a log or state files",

	Sources: []string{
		"pytorch/pytorch #98828, PR #98876: growth without a bound, refused since PyTorch 2.1",
		"google/flax #2547: growth factor 10, interval 1: Inf within 70 steps and no way back",
		"Keras 3, keras/src/optimizers/loss_scale_optimizer.py: the scale is doubled without a bound",
		"PyTorch, torch/distributed/fsdp/sharded_grad_scaler.py: on a CPU the new scale is not tested",
		"Megatron-LM, megatron/core/optimizer/grad_scaler.py: no maximum",
	},

	decide: decideOC3007,
}

func decideOC3007(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		history := s.ScaleHistory()
		judged = judged || len(history) > 0
		highest, moved, stuck := 0.0, false, 0
		for i, a := range history {
			highest = max(highest, a.Scale)
			moved = moved || i > 0 && a.Scale != history[i-1].Scale
		}
		for i, a := range history {
			infinite := math.IsInf(a.Scale, 1)
			if a.Skipped && a.Scale == highest && moved {
				stuck++
			} else {
				stuck = 0
			}
			if !infinite && !(stuck > floorSkips && i+1 < len(history) && history[i+1].Scale == a.Scale) {
				continue
			}
			hits = append(hits, hit{
				story: s, event: a.Event, attempt: a.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					if infinite {
						return "The scale reached infinity: every gradient is, and no step will be taken again.", []Evidence{{"loss scale", a.Scale}}
					}
					return fmt.Sprintf("The scale stays at its cap, %s, while gradients overflow.", num(a.Scale)), []Evidence{{"loss scale", a.Scale}, {"skipped steps in a row", stuck}}
				},
			})
		}
	}
	return decided(hits, judged)
}
