package check

import (
	"fmt"
	"math"

	"ordercheck/step"
)

var oc2007 = Rule{
	ID:       "OC2007",
	Title:    "a gradient norm overflowed in FP16 although the true norm is finite",
	Severity: Error,

	Meaning: `The norm of FP16 gradients is itself an FP16 number in PyTorch, and from 65520 on it
is Inf, although each gradient is finite and float32 would hold their norm with ease.
Two gradients of 50000 have a norm of 70711. clip_grad_norm_ returns Inf for them,
multiplies both by max_norm / Inf, and the optimizer steps on zeros. Where the squares
are taken in FP16 as well it begins at 256: burn clipped [300] to [0], and optax does,
since 300^2 = 90000.

A norm over all parameters gets there long before any element does. At S = 65536 a
true norm of 1 is already over the edge, at 131072 one of 0.5. In a measured run it
happened on 12 of 24 steps, with true norms of 0.77 to 3.4: all gradients became 0, m
and v decayed, the step counted, weight decay acted. The steps that are lost are those
with large gradients, which the clip was meant to shorten and let through.

The log shows inf on every second line and no skip, with a scale that goes on growing.
That tells it from a real overflow: a scaler finds nothing that is not finite, since
all the elements are. Where the verdict is taken from the norm the step is skipped
instead, and that is OC2008.`,

	Wrong: `import torch

model.half()
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(masters, lr=3e-4)
scale = 65536.0
for x, y in loader:
    model.zero_grad()
    (loss_fn(model(x.half()).float(), y) * scale).backward()
    if not all(p.grad.isfinite().all() for p in model.parameters()):
        scale /= 2; continue
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scale)  # Inf from 65520 on
    for m, p in zip(masters, model.parameters()):
        m.grad = p.grad.float().div_(scale)
    optimizer.step()
    with torch.no_grad(): [p.copy_(m) for m, p in zip(masters, model.parameters())]`,

	Right: `import torch

model.half()
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(masters, lr=3e-4)
scale = 65536.0
for x, y in loader:
    model.zero_grad()
    (loss_fn(model(x.half()).float(), y) * scale).backward()
    if not all(p.grad.isfinite().all() for p in model.parameters()):
        scale /= 2; continue
    for m, p in zip(masters, model.parameters()):
        m.grad = p.grad.float().div_(scale)
    torch.nn.utils.clip_grad_norm_(masters, 1.0)  # float32
    optimizer.step()
    with torch.no_grad(): [p.copy_(m) for m, p in zip(masters, model.parameters())]`,

	Mend: []Remedy{
		{"PyTorch", `Clip float32 gradients: the masters behind the division, or those that autocast leaves
on float32 parameters. If FP16 gradients have to be measured, widen them first,
norm = torch.nn.utils.get_total_norm([p.grad.float() for p in params]), and hand that
to torch.nn.utils.clip_grads_with_norm_(params, max_norm, norm).`},
		{"JAX", `optax.clip_by_global_norm squares in the gradients' type: cast them to float32 in
front of the chain.`},
	},

	Needs: "the norm that the clip used, and the gradients that it was taken of",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py, _get_total_norm: norms of the tensors and their norm keep the gradients' type",
		"tracel-ai/burn #5699: [300.0] clipped to [0.0]",
		"facebookresearch/fairscale PR #263: 5000^2 overflowed in FP16, the norm was Inf",
		"optax 0.2.8, optax/transforms/_clipping.py, clip_by_global_norm: the global norm of FP16 updates is FP16",
	},

	Explains: []string{"OC2006"},

	decide: decideOC2007,
}

func decideOC2007(r *Run) Outcome {
	if !r.has(step.Clip, nil) && !r.has(step.Norm, nil) {
		return r.lacks("no norm is taken")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i, e := range s.Events {
			if e.Kind != step.Clip || !e.Norm.Known {
				continue
			}
			st, format := s.NormInput(i)
			judged = judged || st.N > 0 || !math.IsInf(e.Norm.Value, 0)
			if st.N == 0 || st.NonFinite > 0 || !math.IsInf(e.Norm.Value, 1) || format != "F16" {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: s.OwnerOf(s.Universe.Set(e.Covers.Value)), certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The norm of these FP16 gradients is itself FP16 and overflowed: every gradient is finite and their norm is %s, beyond 65504.", num(st.Norm())),
						[]Evidence{{"norm that the clip got", e.Norm.Value}, {"norm of the gradients", st.Norm()}, {"largest gradient", st.Max}}
				},
			})
		}
	}
	return decided(hits, judged)
}
