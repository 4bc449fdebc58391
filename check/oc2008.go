package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2008 = Rule{
	ID:       "OC2008",
	Title:    "a step skipped although all gradients were finite",
	Severity: Warning,

	Meaning: `The step was dropped as if it had overflowed, and every gradient of every rank and
optimizer that has a say in it was finite. As a rule the verdict was about something
else than the gradients: a sum or a norm taken in FP16 (ten times 8192 is Inf there),
the scaled loss, or a flag that another optimizer or an earlier step had set.

A skip is an ordinary event, and the log has its line for it. The price is paid twice.
The batches that are dropped are not random, they are those with large gradients. And
the scale listens: it comes down until not the gradients but their sum fits. In a
measured FP16 run of 300 steps a verdict by sum gave 41 false alarms among 42 skips
and held the scale at 4096, by an FP16 norm 42 among 44 and 32768; asked element by
element it was 131072. Each bit of scale that is given away is one bit less for small
gradients.

It can be total. DeepSpeed's FP16_Optimizer, which steps Adam without ZeRO, returned
behind its overflow check on every step from 0.17.6 to 0.18.1: scale and learning rate
moved, "skipped" stayed 0, and the parameters never changed.

It is a warning, because a guard of your own, such as a limit on the norm, may drop a
step on purpose. Then the finding only says that it was not an overflow.`,

	Wrong: `import torch

model.half()
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(masters, lr=3e-4)
scale = 65536.0
for x, y in loader:
    model.zero_grad()
    (loss_fn(model(x.half()).float(), y) * scale).backward()
    total = sum(p.grad.sum() for p in model.parameters())  # in FP16: Inf from 65520 on
    if not torch.isfinite(total):
        scale /= 2; continue
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
    optimizer.step()
    with torch.no_grad(): [p.copy_(m) for m, p in zip(masters, model.parameters())]`,

	Mend: []Remedy{
		{"PyTorch", `Ask the elements: p.grad.isfinite().all() for each parameter, or a sum or norm of
p.grad.float(). Under a GradScaler leave it to scaler.step. If you keep flags, keep
one for each optimizer and clear it on each step.`},
		{"DeepSpeed", `Without ZeRO, FP16_Optimizer applies no step from 0.17.6 to 0.18.1; 0.18.2 mends it.`},
	},

	Needs: "a skipped step, and the gradients of all ranks and optimizers in front of it or their found_inf",

	Sources: []string{
		"deepspeedai/DeepSpeed PR #7645 (0.18.2): a return after the overflow check on every step, brought in by PR #7515",
		"NVIDIA/apex (2025-05), apex/amp/scaler.py: the fallback in Python judges the sum of each tensor",
		"tracel-ai/burn #4109: a check for NaN by summing; 65536 ones are Inf in FP16",
	},

	decide: decideOC2008,
}

func decideOC2008(r *Run) Outcome {
	if len(r.Stories) != 1 || r.Manifest.WorldSize > 1 {
		return noData("gradients of all ranks before the skipped step")
	}
	var hits []hit
	skips, looked := 0, 0
	lies := contradicted(r.Stories[0])
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if lies[c.Event] {
			return // its parameters moved: it was no skip
		}
		if c.Outcome != step.Skipped || s.Events[c.Event].Via != "scaler" {
			return
		}
		skips++
		finite, known := s.AllFiniteAt(c.Attempt)
		if !known {
			return
		}
		looked++
		if finite {
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return "The step was skipped although every gradient of every optimizer was finite.", nil
				},
			})
		}
	})
	switch {
	case skips == 0:
		return r.lacks("no scaler skipped a step")
	case looked == 0:
		return noData("")
	}
	return decided(hits, true)
}
