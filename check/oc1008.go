package check

import (
	"fmt"

	"ordercheck/evidence"
)

var oc1008 = Rule{
	ID:       "OC1008",
	Title:    "a decay, noise or another term added to gradients that still carry the loss scale",
	Severity: Error,

	Meaning: `Whatever is added to a gradient by hand, a decay, noise, a correction, has a constant
that was chosen for true gradients. Added while the gradients carry S, it is divided
along with them and arrives as 1/S of what was meant. At S = 65536 a decay of 0.01
acts as 1.5e-7. In a measured run noise of norm 0.55 was added in front of the
unscale, and noise of norm 8.4e-6 reached the optimizer.

No value is out of range and the loss is that of a run without the term, so nothing
looks wrong. A regulariser that is not there shows as overfitting, weeks later. Noise
that is not there shows nowhere, and under differential privacy it was the guarantee:
the noise in the update is 65536 times smaller than the noise in the accounting. When
the scale doubles, the term halves, so how strong it is depends on how often the run
overflowed.

A term of the loss is no fault, since it is multiplied by S like the rest. Nor is what
needs no constant: gradient centralisation, a projection, a mean over ranks. What
gives the fault away is a term that stays the same in raw units at two different
scales.`,

	Wrong: `import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    with torch.no_grad():
        for p in model.parameters():
            p.grad.add_(p, alpha=0.01)  # at 65536: a decay of 0.00000015
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    with torch.no_grad():
        for p in model.parameters():
            p.grad.add_(p, alpha=0.01)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Call scaler.unscale_(optimizer) before anything of your own touches the gradients, or
multiply the constant by scaler.get_scale(). A decay is best left to the optimizer:
its weight_decay acts inside step, behind the division, in the fused ones too. A hook
(register_hook) runs inside backward, on scaled gradients.`},
		{"Accelerate", `Call accelerator.unscale_gradients() first. accelerator.clip_grad_norm_ would unscale
again and raise; clip with torch's own function behind it, or add the term after
accelerator.clip_grad_norm_.`},
		{"Lightning", `Use on_before_optimizer_step, which runs after the unscale, and not on_after_backward.
With a fused optimizer gradients are scaled in both.`},
		{"JAX", `optax.add_decayed_weights and optax.add_noise stand in the chain that is given
unscaled gradients: those of flax's DynamicScale.value_and_grad, or of jmp's
loss_scale.unscale.`},
	},

	Needs: "gradients before and after the addition, or what the optimizer received, at two loss scales",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: for gradients that are to be modified or inspected before the step",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: unscale before clipping and weight decay, then no constant has to be adjusted",
		"rwth-i6/returnn PR #1595: noise and clip moved behind the unscale",
		"NVIDIA/apex #1030: LARC adds weight decay to gradients that carry the scale",
	},

	decide: decideOC1008,
}

// Terms that are added to gradients are compared at two scales by the root mean
// square of what was added; noise varies, a factor of two in the scale is more.
const termSlack = 0.2

func decideOC1008(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged, waiting := false, false
	for _, s := range r.Stories {
		for _, terms := range s.AddedTerms() {
			switch evidence.Compared(terms, termSlack) {
			case evidence.Stays:
				for _, term := range terms {
					hits = append(hits, hit{
						story: s, event: term.Event, attempt: s.Events[term.Event].Attempt, optimizer: term.Optimizer, certainty: Proven,
						tell: func() (string, []Evidence) {
							return fmt.Sprintf("Something with a root mean square of %s was added to gradients that carry the loss scale %s, and the same at another scale: in true gradients it is %s.",
									num(term.Value), num(term.Scale), num(term.Value/term.Scale)),
								[]Evidence{{"loss scale", term.Scale}, {"root mean square of what was added", term.Value}, {"in the unit of true gradients", term.Value / term.Scale}}
						},
					})
				}
			case evidence.Moves:
				judged = true
			default:
				waiting = true
			}
		}
		judged = judged || s.Looked && !waiting
	}
	if len(hits) == 0 && waiting {
		return noData("")
	}
	return decided(hits, judged)
}
