package check

import (
	"math"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2009 = Rule{
	ID:       "OC2009",
	Title:    "the loss was not finite before it was scaled: no scale can help",
	Severity: Error,

	Meaning: `The loss that was handed to scaler.scale was Inf or NaN already. Something in the
forward pass left the range of FP16: an activation above 65504 (66246 in a T5 layer),
the square of a number of 256 or more, a sum over too many terms; or the data brought
it. The scale is multiplied in afterwards, and no value of it would have been better.

The scaler does right by the step, which is skipped, and wrong by the scale, for it
takes the NaN for an overflow that it has caused, and halves. In a measured run with
one such batch in four the scale went from 65536 to 0.0625 in 80 steps and never grew.
It does not take that many: at the default growth interval of 2000 one such batch in
2000 keeps the scale from ever growing and costs a factor of 2 each time.

What you see is a skip with a falling scale, and it reads like a scale that was too
high. The price is paid by all the other batches. As the scale falls their small
gradients turn to zero, first in the layers where gradients are smallest. Below 1 the
scaler makes gradients smaller instead of larger, and the division may overflow behind
the check. A log that filters NaN out of the loss hides the one number that tells.

If the parameters are NaN every loss is: then look for the step that let the NaN in.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        h = model(x)
        loss = loss_fn((h * h).mean(-1), y)  # FP16: an h of 256 squares to Inf
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        h = model(x).float()  # from here on in float32
        loss = loss_fn((h * h).mean(-1), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Find the first tensor that is not finite, with forward hooks that ask isfinite, and
compute that part in float32: .float() on what goes in, and torch.autocast("cuda",
enabled=False) around it if it holds matrix products. Or train in BF16, which has the
range of float32 and needs no scaler. For bad data, leave the iteration before
backward (if not torch.isfinite(loss): continue), without scale and update, and on all
ranks alike.`},
	},

	Needs: "the loss as it was given to scale(), on a step that was skipped",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, update: backs off for any found_inf, whatever has caused it",
		"huggingface/transformers #5651 (T5: 66246 above 65504), #12225 (Pegasus), #25938 (Mask2Former, a sum over 121445 points)",
		"pytorch/pytorch #85791: CrossEntropyLoss in FP16 is Inf; #99640, #96755: scales below 1",
		"facebookresearch/xformers PR #98: attention that overflowed in FP16, kept in float32",
	},

	decide: decideOC2009,
}

// leastLosses is how often a loss has to be not finite before it is said that
// the loss itself is at fault: a single batch may overflow in the forward pass
// and be skipped rightly.
const leastLosses = 3

func decideOC2009(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		var found []hit
		last := lastFiniteLoss(s)
		for i, e := range s.Events {
			if e.Kind == step.Backward && s.HandScale {
				judged = judged || e.Root.Known // the product; that it is finite says that the loss was
			}
			if e.Kind != step.ScaleLoss || !e.Loss.Known {
				continue
			}
			judged = true
			if i > last && last >= 0 {
				continue // no loss is finite any more: the parameters are not, and something made them so
			}
			if math.IsNaN(e.Loss.Value) || math.IsInf(e.Loss.Value, 0) {
				found = append(found, hit{
					story: s, event: i, attempt: e.Attempt, certainty: Observed,
					tell: func() (string, []Evidence) {
						return "The loss was not finite before it was multiplied by the scale: the step is skipped at any scale, and the scale falls for nothing.",
							[]Evidence{{"loss", e.Loss.Value}, {"loss scale", e.Scale.Value}}
					},
				})
			}
		}
		if len(found) >= leastLosses {
			hits = append(hits, found...)
		}
	}
	return decided(hits, judged)
}

// lastFiniteLoss is the event of the last finite loss, -1 if none was.
func lastFiniteLoss(s *evidence.Story) int {
	last := -1
	for i, e := range s.Events {
		if e.Kind == step.ScaleLoss && e.Loss.Known && !math.IsNaN(e.Loss.Value) && !math.IsInf(e.Loss.Value, 0) {
			last = i
		}
	}
	return last
}
