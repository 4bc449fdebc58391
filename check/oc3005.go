package check

import (
	"fmt"
	"math"
	"slices"

	"ordercheck/evidence"
)

var oc3005 = Rule{
	ID:       "OC3005",
	Title:    "the scale collapsed, or is stuck while gradients overflow",
	Severity: Error,

	Meaning: `A scale that halves at each overflow looks for a value at which FP16 can hold the
gradients. If there is none it falls on: from 65536 it is 16 halvings to 1 and 166 to
0. Or it is stuck, at a floor or because nothing lowers it, while step after step is
skipped. In a measured loop that began at 2^21 and had no halving, 24 of 24 steps were
skipped, and each of them printed a loss.

The scale is nearly always the messenger. Parameters that became NaN in a step that
should have been skipped overflow at any scale. So does a loss that is not finite
before it is multiplied: in a measured loop that was every fourth one, growth needed
five clean steps in a row, and in 80 steps the scale fell from 65536 to 0.0625. So does
an Inf that was left in a gradient buffer, and so do activations beyond 65504. But what
the log shows is a scale, and one turns the knobs of the scaler.

On its way down it does harm of its own. A true gradient below 3e-8 / S becomes zero,
so at 1 the protection is gone. Below 1 the check is none any more: it looks at the
scaled number, which may be finite where the number divided by S is not. At 0 all
gradients are 0, the check finds nothing, 0 times 1/0 is NaN, and PyTorch steps on it.

A burst at the start is none of this: from 2^32 it takes 17 skips to come down to 2^15,
one halving each. Nor is a single overflow every few hundred steps.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 2.0**21

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    (loss * scale).backward()
    for p in model.parameters():
        p.grad.div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()  # at this scale it may never come to that`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scale = 2.0**21

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
        scale /= 2
    assert scale >= 1.0, "no scale helps: look at parameters, data and loss"`,

	Mend: []Remedy{
		{"PyTorch", `Look for the first number that is not finite, in this order: parameters, input, the
loss before scaler.scale, activations. Parameters: go back to a checkpoint from before.
A layer that passes 65504 in the forward: run it in float32, inside
torch.autocast("cuda", enabled=False). A model pretrained in BF16: train it in BF16,
without a scaler. GradScaler has no floor; read scaler.get_scale() now and then (it
waits for the device) and stop the run when it is below 1.`},
		{"DeepSpeed", `With ZeRO the run stops by itself: "Current loss scale already at minimum - cannot
decrease scale anymore. Exiting run." A lower "min_loss_scale" only postpones that. The
FP16 optimizer without ZeRO stays at the floor and goes on skipping.`},
		{"Keras", `Keras 3 has no floor, and the scale can fall to 0. tf_keras stops at 1, which is too
high for some models: they never learn.`},
		{"JAX", `jmp has a floor of 1, and another min_loss_scale is lost on the way through jit. flax's
default floor is the smallest normal float32: pass minimum_scale=1.0.`},
	},

	Needs: "the scale and the skipped steps over many steps, from calls, a log or state files",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, update: a backoff without a floor",
		"pytorch/pytorch #99640, #96755: at a scale below 1 a gradient passes the check and overflows in the division",
		`DeepSpeed 0.19.8, deepspeed/runtime/fp16/loss_scaler.py: "Current loss scale already at minimum"; deepspeedai/DeepSpeed #697: stuck at 1`,
		"PaddlePaddle/Paddle #67895: gradients never cleared, an old Inf stays in the sum, the scale falls to 0",
		"Junjue-Wang/FactSeg #6: 2.0e-320, then 0; ymcui/Chinese-LLaMA-Alpaca #534: at its minimum; facebookresearch/fairseq #1529",
		"keras-team/tf-keras #644: a floor of 1 that was too high; google-deepmind/jmp PR #44: min_loss_scale lost",
	},

	decide: decideOC3005,
}

const (
	longestRun = 20 // skips in a row that a burst may take while the scale falls at each
	floorSkips = 5  // skips at one scale, the lowest, before it is said to be stuck there
)

func decideOC3005(r *Run) Outcome {
	if !r.scaled() && !r.maybeScaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		history := s.ScaleHistory()
		judged = judged || len(history) > 0
		run, falls := 0, true
		lowest := math.Inf(1)
		if s.MaybeHand && !allSkipped(history) {
			continue // whatever multiplies the losses, some step was taken
		}
		moved := false
		for i, a := range history {
			lowest = min(lowest, a.Scale)
			moved = moved || i > 0 && a.Scale != history[i-1].Scale
		}
		stuck := 0
		for i, a := range history {
			say := func(why string) {
				hits = append(hits, hit{
					story: s, event: a.Event, attempt: a.Attempt, certainty: Observed,
					tell: func() (string, []Evidence) {
						return why, []Evidence{{"loss scale", a.Scale}, {"skipped steps in a row", run}}
					},
				})
			}
			if !a.Skipped {
				run, falls, stuck = 0, true, 0
			} else {
				run++
				falls = falls && i+1 < len(history) && history[i+1].Scale < a.Scale
				if a.Scale == lowest {
					stuck++
				}
			}
			switch {
			case a.Scale < 1 && history[0].Scale >= 1:
				say(fmt.Sprintf("The scale has fallen to %s: below 1 it makes gradients smaller, and whatever overflows is not mended by it.", num(a.Scale)))
			case run > longestRun && !falls:
				say(fmt.Sprintf("%d steps in a row were skipped and the scale, %s, did not fall at each of them.", run, num(a.Scale)))
			case moved && stuck > floorSkips && i+1 < len(history) && history[i+1].Scale == a.Scale:
				say(fmt.Sprintf("The scale is at its floor, %s, and gradients still overflow.", num(a.Scale)))
			}
		}
	}
	return decided(hits, judged)
}

func allSkipped(history []evidence.ScaleAt) bool {
	return !slices.ContainsFunc(history, func(a evidence.ScaleAt) bool { return !a.Skipped })
}
