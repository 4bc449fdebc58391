package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4002 = Rule{
	ID:       "OC4002",
	Title:    "unscaled between the micro-batches: scaled and true gradients are summed",
	Severity: Error,

	Meaning: `unscale_ divides what stands in the buffer. Behind a micro-batch that is not the last
it makes a partial sum true, and the next backward adds a scaled gradient to it. One
buffer now holds two units, and no divisor is right for both.

Divided by hand after each of four micro-batches, the last one counts as it should, the
one before it 1/65536, and the first practically nothing. In a measured loop the
optimizer got 0.25 to 0.36 of the right gradient, at a cosine of 0.76 to 0.92 with it:
three quarters of the work were thrown away. Unscaled once, behind the first
micro-batch, the other three stay scaled, because scaler.step takes the division for
done; there the optimizer was to get 47000 to 55000 times the gradient, and the check
had seen the first micro-batch only.

AdamW cancels both factors, and a clip the second. The two loops ended at a loss of
4.64 and 4.45, the right one at 4.33, and no curve tells them apart. PyTorch notices a
second unscale_ in the same window and nothing else: "unscale_() has already been
called on this optimizer since the last update()." That text also comes up where an
epoch has fewer batches than a window and nobody flushes the rest.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for x, y in micro_batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y) / len(micro_batches)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # raises at the second micro-batch
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for x, y in micro_batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y) / len(micro_batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Unscale once per step, behind the last backward and under the condition of scaler.step;
a division by hand belongs there as well. A condition of its own, such as i % k == 0
here and (i + 1) % k == 0 there, is how the two drift apart. For a look at the norm of
a partial sum divide the norm, not the gradients.`},
		{"Accelerate", `accelerator.clip_grad_norm_ and clip_grad_value_ unscale first: call them under "if
accelerator.sync_gradients:".`},
		{"Lightning", `Unscaling is part of the step. With manual optimization step only at the end of a
window, and do not unscale yourself.`},
		{"JAX", `The gradients of a micro-batch are a value of their own. Dividing each by its scale and
adding the results is right; adding first and dividing the sum inside the loop is not.`},
	},

	Needs: "the order of backward, unscale and step calls with their micro-batches, or gradients before and after each unscale",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: only after all gradients of the optimizer have been accumulated",
		"microsoft/Swin-Transformer #311, hiyouga/LlamaFactory #77: unscale_ on a micro-batch that does not step",
		"huggingface/transformers #24840: fewer batches than accumulation steps; huggingface/accelerate #641",
		"pytorch/pytorch PR #36601: unscale_ and update() belong in the iterations that step",
	},

	decide: decideOC4002,
}

func decideOC4002(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	hits := r.errorHits("OC4002", "Gradients were to be unscaled at each micro-batch of one step.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	if len(hits) == 0 && !r.accumulates() {
		return notApplicable("one backward a step: no micro-batches")
	}
	out := r.breachRule("OC4002", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) (string, []Evidence) {
		return "The partial sum was unscaled and a later micro-batch, which carries the scale, was added to it: the two have no common unit, and the next division makes the first one vanish.",
			[]Evidence{{"micro-batches in the sum", len(p.Terms)}}
	})
	if len(hits) > 0 {
		return faults(append(told(hits), out.Findings...))
	}
	return out
}
