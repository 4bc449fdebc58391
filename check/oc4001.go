package check

import (
	"fmt"
	"slices"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4001 = Rule{
	ID:       "OC4001",
	Title:    "gradients clipped on each micro-batch instead of once per step",
	Severity: Error,

	Meaning: `With accumulation the gradient of the step is the sum over its micro-batches, and that
sum is what a threshold is about. A clip after each backward acts on partial sums: the
first micro-batch is clipped, the second is added and both are clipped, and so on.
What came first has been shortened most often.

Take two micro-batches with gradients [2, 0] and [0, 2] and a threshold of 1. The sum
is [2, 2], clipped once [0.71, 0.71]. Clipped each time: [2, 0] becomes [1, 0], adding
[0, 2] gives [1, 2], clipped [0.45, 0.89]. The norm is the same, the direction is not,
and it depends on the order of the data: the second micro-batch weighs twice as much
as the first.

The norm at the optimizer never exceeds the threshold, so a log shows nothing. In a
measured loop of four micro-batches with a quarter of the threshold each the optimizer
got 0.28 to 0.42 of the right gradient, at a cosine of 0.977 to 0.992 with it. Adam
makes the factor disappear and keeps the wrong direction: the run does not match the
same batch trained without accumulation.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for x, y in micro_batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y) / len(micro_batches)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
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
		{"PyTorch", `Unscale and clip once, behind the last backward and in front of scaler.step, under the
same condition as the step: (i + 1) % k == 0, and the flush of a last, shorter window
if there is one.`},
		{"Accelerate", `Write "if accelerator.sync_gradients:" before accelerator.clip_grad_norm_. Without it
the call also unscales on each micro-batch, and raises in FP16.`},
		{"Lightning", `Trainer(accumulate_grad_batches=k, gradient_clip_val=1.0) clips only when it steps.
With manual optimization you count, and clip only before opt.step().`},
		{"DeepSpeed", `"gradient_clipping" in the configuration acts once, in the step at the accumulation
boundary.`},
		{"Keras", `Set gradient_accumulation_steps and global_clipnorm on the same (inner) optimizer: it
averages, then clips, on the step that updates.`},
		{"JAX", `optax.MultiSteps(optax.chain(clip, optimizer), k) clips the accumulated gradient. A
clip in front of MultiSteps acts on each micro-batch.`},
	},

	Needs: "the order of backward, clip and step calls with their micro-batches, or gradients before and after each clip",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: only after all gradients of the optimizer have been accumulated",
		"huggingface/transformers #986: run_squad.py, with the example [2, 0], [0, 2]; #1563, PR #1580",
		"facebookresearch/lingua PR #59, tenstorrent/tt-metal #17568, catalyst-team/catalyst #1319",
		"huggingface/accelerate #641, huggingface/diffusers PR #721: clip on micro-batches that do not step",
	},

	decide: decideOC4001,
}

func decideOC4001(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	windows, sums := 0, 0
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			if p := &c.Parts[i]; p.State == step.Filled {
				windows++
				if len(p.Terms) > 1 {
					sums++
				}
			}
		}
	})
	r.eachBreach("OC4001", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		var norms []Evidence
		effective, first := false, -1
		for _, w := range p.Words {
			if w.Op.Kind != step.Clip || w.Op.Inert || w.Op.Event > b.Event {
				continue
			}
			if first < 0 {
				first = w.Op.Event
			}
			e := s.Events[w.Op.Event]
			effective = effective || limits(s, p, w)
			norms = append(norms, Evidence{"norm of the partial sum" + micro(e), e.Norm.Value}, Evidence{"threshold", e.Threshold.Value})
		}
		if !effective {
			return
		}
		hits = append(hits, hit{
			story: s, event: first, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				return "The clip limited a partial sum and later micro-batches were added to it: what counts is clipped again and again, and the sum that is stepped is not the clipped gradient of the whole batch.", norms
			},
		})
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case windows == 0:
		return noData("")
	case sums == 0:
		return notApplicable("one backward a step: no micro-batches")
	}
	return passed()
}

// limits reports whether a clip limited the partial sum that it acted on. A
// change that no call explains is taken for a clip only if the same threshold
// was seen in the same place at another step: a mean that is kept by hand
// multiplies partial sums as well. What a hook does inside a backward, to the
// gradient of one micro-batch, is no clip of a sum.
func limits(s *evidence.Story, p *step.Part, w step.Word) bool {
	e := s.Events[w.Op.Event]
	if !e.Inferred {
		return step.Is(active(s, p, w.Op.Event), true)
	}
	return e.Inside == "" && sameThreshold(s, e)
}

// sameThreshold reports whether the changes that no call explains in the place of
// e left one threshold at two steps, in raw numbers or beside the scale.
func sameThreshold(s *evidence.Story, e *step.Event) bool {
	type place struct {
		file  string
		line  int
		micro step.Maybe[int]
	}
	var raw, scaled []float64
	seen := map[int]bool{}
	for i := range s.Machine.Consumptions {
		for j := range s.Machine.Consumptions[i].Parts {
			for _, w := range s.Machine.Consumptions[i].Parts[j].Words {
				o := s.Events[w.Op.Event]
				if w.Op.Kind != step.Clip || !o.Threshold.Known || seen[w.Op.Event] || (place{o.File, o.Line, o.Micro}) != (place{e.File, e.Line, e.Micro}) {
					continue
				}
				seen[w.Op.Event] = true
				_, scale, _ := w.Unit.Exponent()
				raw, scaled = append(raw, o.Threshold.Value), append(scaled, o.Threshold.Value/scale)
			}
		}
	}
	return twice(raw) || twice(scaled)
}

// twice reports whether two of the numbers are the same within rounding.
func twice(numbers []float64) bool {
	slices.Sort(numbers)
	for i := 1; i < len(numbers); i++ {
		if numbers[i]-numbers[i-1] <= 1e-4*numbers[i] {
			return true
		}
	}
	return false
}

func micro(e *step.Event) string {
	if !e.Micro.Known || e.Inferred {
		return ""
	}
	return fmt.Sprintf(", micro-batch %d", e.Micro.Value)
}
