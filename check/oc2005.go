package check

import (
	"fmt"

	"ordercheck/step"
)

var oc2005 = Rule{
	ID:       "OC2005",
	Title:    "a finiteness check of only some of the optimizer's tensors, or of Inf and not NaN",
	Severity: Error,

	Meaning: `A verdict has to be about every element that the optimizer will read, and it has to
know both kinds of damage. A check of the first parameter group, of one tensor, of the
last micro-batch only, or by isinf alone, passes what it does not look at.

An overflow seldom stays Inf. Inf - Inf in a sum over the batch is NaN, and so is 0
times Inf; a normalisation or a softmax spreads it. In a small MLP the batch that
overflowed at S = 65536 left NaN in all six gradient tensors and no Inf in any. In a
small transformer 14 of 16 tensors held NaN and no Inf at S = 2^24, at 2^28 all 16.
isinf finds nothing there, and neither does a comparison: norm > limit is false if the
norm is NaN.

In a measured loop that checked the weights and not the biases, two overflows were
caught and the third, at step 15, was in a single element of a bias: the one parameter
that became NaN made the loss NaN from then on. The check, which now sees NaN
everywhere, skips every step, the scale halves on each, and the log tells of a scale
that cannot settle instead of a check that was blind once.`,

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
    if any(p.grad.isinf().any() for p in model.parameters()):  # NaN is no Inf
        scale /= 2
    else:
        optimizer.step()`,

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
    if not all(p.grad.isfinite().all() for p in model.parameters()):
        scale /= 2
    else:
        optimizer.step()`,

	Mend: []Remedy{
		{"PyTorch", `Ask isfinite, of every parameter in every group of optimizer.param_groups, behind the
last backward of the step. Or take the norm over all of them in float32, which is
finite only if every element is, and ask torch.isfinite(norm), not norm < limit.
GradScaler does all of this.`},
		{"JAX", `jmp.all_finite(grads) over the whole tree. optax.apply_if_finite tests what it is
given: put it around the whole chain, not around the part for one group.`},
	},

	Needs: "the tensors that a check covered, or gradients and outcome of a step that overflowed",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, _unscale_grads_: all groups, Inf and NaN",
		"facebookresearch/fairscale PR #890: ShardedGradScaler checked the first tensor only",
		"Azure/MS-AMP PR #56: NaN in FP8 gradients not checked, about 1 % of accuracy on DeiT-S",
		"NVIDIA/apex (2025-05), apex/amp/scaler.py: with accumulation only the gradient that is added is checked, not the sum",
	},

	Explains: []string{"OC2002"},

	decide: decideOC2005,
}

func decideOC2005(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			if c.Outcome != step.Applied {
				judged = judged || c.Outcome == step.Skipped
				continue
			}
			missed, why := s.Unchecked(c)
			if missed == nil {
				continue
			}
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("Steps are skipped when other gradients overflow, but not here: %s. The check does not look at %s.", why, tensors(missed)),
						[]Evidence{{"tensors that are not checked", tensors(missed)}}
				},
			})
		}
	}
	if len(hits) == 0 && !judged && !r.guarded() {
		return noData("")
	}
	return decided(hits, true)
}
