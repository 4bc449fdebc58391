package check

import (
	"slices"
	"strings"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc3003 = Rule{
	ID:       "OC3003",
	Title:    "the scale updated again with no backward since, or between the micro-batches of one step",
	Severity: Error,

	Meaning: `A scale is to be updated once per step: after the step, for what the backward passes
of this step have shown. Here it was updated again with no backward of this scaler in
between, or in the middle of the micro-batches of one step.

Between the steps of two optimizers the update does three kinds of harm. Where it
moves the scale, the second optimizer's gradients carry the old one and are divided by
the new one: they arrive at half their size after a growth, at twice their size after
an overflow of the first. It forgets that unscale_ was called, so gradients that were
unscaled for a clip are divided once more. And it counts everything twice: the default
growth interval of 2000 steps is 1000, an overflow in both quarters the scale. In a
measured run with a growth interval of 5 the scale doubled in the third iteration, and
fell from 262144 to 65536 in a single one.

Between micro-batches, gradients of different scales are summed in one buffer, and no
single division is right for both.

Nothing raises, and on most steps nothing is wrong, because the scale rarely moves. On
the few where it does, one optimizer takes a step on a gradient that is off by a
factor of two, and no curve will show that.`,

	Wrong: `import torch

slow = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
fast = torch.optim.AdamW(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    slow.zero_grad(); fast.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(head(encoder(x)), y)
    scaler.scale(loss).backward()
    scaler.step(slow)
    scaler.update()
    scaler.step(fast)  # divides by a scale that its gradients may not carry
    scaler.update()`,

	Right: `import torch

slow = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
fast = torch.optim.AdamW(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    slow.zero_grad(); fast.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(head(encoder(x)), y)
    scaler.scale(loss).backward()
    scaler.step(slow)
    scaler.step(fast)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Call scaler.update() once at the end of the iteration, behind the last scaler.step,
and with accumulation only on the micro-batch that steps. Where two losses are scaled,
stepped and updated one after the other, as in GAN loops, let each backward come after
the update of the one before, or give each its own scaler.`},
		{"Accelerate", `The step of a prepared optimizer updates the scale itself. For one common loss use one
optimizer with two parameter groups; for two losses run the second
accelerator.backward after the first step.`},
		{"Lightning", `In FP16 the step of an optimizer updates the scale itself. With two of them in manual
optimization call manual_backward and step for the first, then both for the second;
for one common loss use one optimizer with two parameter groups.`},
	},

	Needs: "the order of backward, step and update calls of one scaler, or its scale and growth count around each update",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, update: only at the end of the iteration, after step has been called for all optimizers of it",
		"huggingface/accelerate #439: update() inside AcceleratedOptimizer.step, twice per iteration with two optimizers",
		"neosr-project/neosr PR #9: update() called twice",
		"rohitg00/ai-engineering-from-scratch PR #208: update() on a step where nothing was scaled",
	},

	decide: decideOC3003,
}

func decideOC3003(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	hits := r.errorHits("OC3003", "The scale was updated again, and no backward of this scaler had run since the last update.")
	if len(hits) == 0 && (!r.scaled() || !r.has(step.UpdateScale, nil) && !r.scaledByHand()) {
		return r.lacks("the scale is never updated")
	}
	gaps := false
	for _, s := range r.Stories {
		gaps = gaps || s.Gaps
		for _, b := range s.Machine.Loose {
			if b.Rule != "OC3003" {
				continue
			}
			e := s.Events[b.Event]
			hits = append(hits, hit{
				story: s, event: b.Event, attempt: e.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					return "The scale was updated again although no backward of this scaler had run since its last update: one clean step counts twice, and an overflow halves the scale twice.",
						[]Evidence{{"scale before", e.Previous.Value}, {"scale after", e.Scale.Value}}
				},
			})
		}
	}
	steps := 0
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		steps++
		c.Breaches("OC3003", func(p *step.Part, b step.Breach) {
			if !seenFull(p, b) && !r.has(step.ZeroGrad, nil) {
				return // the script empties gradients by hand, which no call shows
			}
			h := hit{story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed}
			var units []string
			for _, t := range p.Terms {
				u := s.TermScale(t)
				if len(units) == 0 || units[len(units)-1] != u {
					units = append(units, u)
				}
			}
			h.idle = len(units) < 2 || c.Outcome != step.Applied
			if !h.idle {
				h.certainty = Proven
			}
			h.tell = func() (string, []Evidence) {
				if len(units) < 2 {
					return "The scale was updated between the micro-batches of one step. It did not move there, so the sum is one of equal scales: " + strings.Join(units, ", ") + ".", nil
				}
				return "The scale was updated between the micro-batches of one step, so that the sum holds gradients of different scales and one division cannot mend it: " + strings.Join(units, ", ") + ".",
					[]Evidence{{"scales in the sum", strings.Join(units, ", ")}}
			}
			hits = append(hits, h)
		})
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case gaps || steps == 0:
		return noData("")
	}
	return passed()
}

// seenFull reports whether the backward of a breach was seen to add to gradients
// that were there.
func seenFull(p *step.Part, b step.Breach) bool {
	return slices.ContainsFunc(p.Words, func(w step.Word) bool {
		return w.Op.Event == b.Event && w.Op.Kind == step.Backward && step.Is(w.Op.Fresh, false)
	})
}
