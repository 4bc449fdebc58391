package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1001 = Rule{
	ID:       "OC1001",
	Title:    "gradients clipped while they still carry the loss scale",
	Severity: Error,

	Meaning: `After backward every gradient is S times too large, S being the loss scale. A clip at
1.0 compares that scaled norm with a threshold that knows nothing of S: at S = 65536
it is a clip of the true norm at 1/65536 = 0.0000153. It is active on practically
every step, and after the unscale the optimizer receives a gradient of norm 0.0000153,
whatever the batch had to say. When the scale doubles, the threshold halves: the loss
scale has become a learning rate. The same goes for a clip by value, for adaptive
clipping, and for a clip in a backward hook. A clip by value does one thing more: it
turns Inf into a finite number, so the overflow is never seen, the step is taken and
the scale keeps growing.

It is silent under Adam, because m / sqrt(v) cancels a constant factor. A tiny
character transformer with AdamW ended at loss 5.293 with this fault, 5.195 without it
and 5.239 with no clip at all: no curve tells these apart. In another small model SGD
with momentum froze at its initial loss (3.66, against 1.065 mended), while AdamW
looked even slightly better than the right loop.

The price is paid later. Every step is normalised, so an outlier batch weighs as much
as a good one. Adam's eps counts S / max_norm times more: 1e-8 acts like 6.6e-4. With
eps = 1e-6 that AdamW run ended at 1.746 instead of 1.013, with 1e-4 it did not train.
And each doubling of S halves the new gradients against the old v.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # at 65536: a clip at 0.0000153
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
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Call scaler.unscale_(optimizer) once per step, after the last backward and before the
clip; scaler.step then knows that it need not divide again. Where one clip covers
several optimizers, unscale each of them first. A fused optimizer needs the call as
well: without it the division happens inside its kernel, after your clip. A clip at
max_norm * scaler.get_scale() is right too, but the norm it returns is then a scaled
one.`},
		{"Accelerate", `Call accelerator.clip_grad_norm_(model.parameters(), 1.0) under "if
accelerator.sync_gradients:". It unscales first; torch's own function does not.`},
		{"Lightning", `Let Trainer(gradient_clip_val=1.0) do it: the clip runs after the unscale (since
1.4.9). With manual optimization put the clip into on_before_optimizer_step, which
runs after the unscale; right after manual_backward the gradients are still scaled.
With a fused optimizer they are scaled there too: use an optimizer that is not fused.
In Fabric call fabric.clip_gradients, which unscales.`},
		{"DeepSpeed", `Set "gradient_clipping" in the configuration and do not clip yourself: the engine
folds the division and the clip into one multiplication.`},
		{"Keras", `Set global_clipnorm, clipnorm or clipvalue on the inner optimizer. LossScaleOptimizer
divides before it calls the inner one, and refuses these arguments itself.`},
		{"JAX", `Clip what is already unscaled: the gradients that flax's DynamicScale.value_and_grad
returns, or those of jmp's loss_scale.unscale(grads); optax.clip_by_global_norm then
stands first in optax.chain.`},
	},

	Needs: "gradients before and after the clip, or the clip's norm and threshold at two loss scales",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: gradients are to be unscaled before they are modified or inspected",
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: the coefficient is min(1, max_norm / (norm + 1e-6)) and always multiplied",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: the scale is best taken out right after backward, ahead of clipping",
		"Lightning before 1.4.9: Lightning-AI/pytorch-lightning #9599, #9694; manual optimization: #18089",
		"pytorch/examples #1196, milesial/Pytorch-UNet #468, allenai/allennlp #5413, apache/mxnet #15738",
		"victorchall/EveryDream2trainer PR #175: clip values of 1e5 to 1e6 were needed, 1.0 halted training",
	},

	Explains: []string{"OC1003", "OC1005", "OC2013"},

	Tensors: true,

	decide: decideOC1001,
}

func decideOC1001(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	r.eachBreach("OC1001", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		h := hit{story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven}
		h.tell = func() (string, []Evidence) { return tellOC1001(s, b) }
		switch now := active(s, p, b.Event); {
		case step.Is(now, false):
			h.certainty, h.idle = Observed, true
		case !now.Known || p.Claimed:
			h.certainty = Observed
		}
		hits = append(hits, h)
	})
	var suspects []hit
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			for _, w := range c.Parts[i].Words {
				if w.Op.Kind != step.Clip || w.Op.Inert || !w.Unit.Known() {
					continue
				}
				scale, carries := w.Unit.IsScale()
				judged = judged || !c.Parts[i].Claimed && (!carries || w.Op.Threshold.Known())
				if t := s.Events[w.Op.Event].Threshold; carries && !w.Op.Threshold.Known() && !c.Parts[i].Claimed &&
					!s.Events[w.Op.Event].Inferred && c.Outcome == step.Applied && t.Known && t.Value/scale < leastThreshold {
					suspects = append(suspects, hit{
						story: s, event: w.Op.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Suspected,
						tell: func() (string, []Evidence) {
							m, ev := tellOC1001(s, step.Breach{Event: w.Op.Event, Unit: w.Unit})
							return m + " The scale never moved in this record, so a threshold that was meant to be this small cannot be ruled out.", ev
						},
					})
				}
			}
		}
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case len(suspects) > 0:
		return faults(told(suspects))
	case judged:
		return passed()
	}
	return noData("")
}

// leastThreshold is the smallest maximal norm of true gradients that is taken
// to be meant.
const leastThreshold = 1e-3

func tellOC1001(s *evidence.Story, b step.Breach) (string, []Evidence) {
	e := s.Events[b.Event]
	scale, _ := b.Unit.IsScale()
	limit := num(e.Threshold.Value)
	if e.Rule == "agc" {
		limit += " of the parameter's norm"
	}
	what := "A clip at " + limit
	switch {
	case e.Inside != "":
		what = "Something inside backward that limits gradients at " + limit
	case e.Inferred:
		what = "Code after line " + num(float64(e.Line)) + " that makes no call limited the gradients at " + limit + "; it"
	}
	m := fmt.Sprintf("%s ran on gradients that still carry the loss scale %s: for true gradients it means %s.",
		what, num(scale), num(e.Threshold.Value/scale))
	ev := []Evidence{{"loss scale", scale}, {"threshold", e.Threshold.Value}, {"threshold / loss scale", e.Threshold.Value / scale}}
	if other, ok := s.AtAnotherScale(b.Event, scale); ok {
		ev = append(ev, Evidence{"the same threshold at loss scale", other})
	}
	if e.Norm.Known {
		ev = append(ev, Evidence{"norm that the clip saw", e.Norm.Value}, Evidence{"true norm", e.Norm.Value / scale})
	}
	if mv, ok := s.Moves[b.Event]; ok {
		if f, ok := mv.Only(b.On).Factor(); ok && !mv.Still() {
			ev = append(ev, Evidence{"gradients were multiplied by", f})
			if e.Norm.Known && e.Threshold.Known && e.Rule == "global_norm" {
				ev = append(ev, Evidence{"a clip of true gradients multiplies by", min(1, e.Threshold.Value/(e.Norm.Value/scale))})
			}
		}
	}
	return m, ev
}
