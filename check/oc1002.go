package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1002 = Rule{
	ID:       "OC1002",
	Title:    "gradients unscaled twice, or although the loss was never scaled",
	Severity: Error,

	Meaning: `Gradients that carry the loss scale S may be divided by it once. The second division,
or the first one where the loss was never multiplied, leaves them S times too small:
at S = 65536 a true norm of 1 arrives as 0.0000153. A clip at 1.0 behind both
divisions is never active again; one between them clips rightly, and its result is
then divided away.

PyTorch catches the plain case: a second unscale_() on the same optimizer raises a
RuntimeError. What gets past it is a division by hand, one update() more, between
unscale_() and step(), that wipes the scaler's memory, two objects for one optimizer
(a wrapper and the inner one), a fused optimizer that divides in its kernel once more,
and BF16, where nothing was scaled at all.

Adam hides the factor until eps matters. A steady gradient element of 0.001 arrives as
1.5e-8, beside an eps of 1e-8, and its update shrinks to 60 %; 0.0001 keeps 13 %,
0.00001 keeps 1.5 %. Layers with small gradients stop first. SGD all but stops. By its
factor alone this looks the same as a clip at 1.0 on scaled gradients; only numbers
from before and after tell the two apart.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for p in model.parameters():
        p.grad.div_(scaler.get_scale())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)  # saw no unscale_, divides again
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
    scaler.step(optimizer)  # knows that unscale_ was called
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Divide by scaler.unscale_(optimizer) and by nothing else, once per step and optimizer,
with the same optimizer object that goes to scaler.step. Keep update() behind step().
In BF16 make the scaler with enabled=False, so that scale, unscale_ and step do
nothing of their own.`},
		{"Accelerate", `accelerator.clip_grad_norm_ and clip_grad_value_ unscale all prepared optimizers: call
one of them once per step, and do not call unscale_gradients or scaler.unscale_ beside
it.`},
		{"Lightning", `The precision plugin unscales before on_before_optimizer_step: take your own unscale_
out. Lightning leaves the division to a fused optimizer.`},
		{"JAX", `flax's DynamicScale.value_and_grad returns gradients that are divided already. With
jmp, call loss_scale.unscale once, on gradients of loss_scale.scale(loss).`},
	},

	Needs: "gradients before and after each division, or the optimizer's state before and after a step beside the true gradients",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py: "unscale_() has already been called on this optimizer since the last update().", "unscale_() is being called after step()."`,
		`PyTorch 2.15.0, torch/amp/grad_scaler.py: "Attempted step but _scale is None." where the loss was never scaled`,
		"pytorch/pytorch PR #94060: fused Adam and AdamW divided although unscale_ had been called; seen as Lightning-AI/pytorch-lightning #15501",
		"huggingface/accelerate PR #115: wrapper unscaled instead of the inner optimizer",
		"deepspeedai/DeepSpeed PR #7839, PR #8393: ZeRO-0 divides by a scale that the loss never had",
		"THUDM/slime PR #1842: gradients prepared twice per step",
	},

	Explains: []string{"OC1001"},

	Tensors: true,

	decide: decideOC1002,
}

func decideOC1002(r *Run) Outcome {
	hits := r.errorHits("OC1002", "Gradients were to be unscaled that do not carry the scale: unscaled before, or of a loss that was never scaled.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			p := &c.Parts[i]
			for _, w := range p.Words {
				judged = judged || w.Op.Kind == step.Unscale && w.Unit.Known() && !p.Claimed
			}
		}
	})
	r.eachBreach("OC1002", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		h := hit{story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed}
		if _, measured := s.Moves[b.Event]; measured || !p.Claimed {
			h.certainty = Proven
		}
		h.tell = func() (string, []Evidence) { return tellOC1002(s, p, b) }
		hits = append(hits, h)
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case judged:
		return passed()
	}
	return noData("")
}

func tellOC1002(s *evidence.Story, p *step.Part, b step.Breach) (string, []Evidence) {
	var first *step.Event
	var divisor float64
	for _, w := range p.Words {
		if w.Op.Kind != step.Unscale {
			continue
		}
		if w.Op.Event == b.Event {
			divisor = w.Op.Divisor
			break
		}
		first = s.Events[w.Op.Event]
	}
	e := s.Events[b.Event]
	who := "the call"
	switch {
	case s.Windows:
		who = "something"
	case e.Inferred:
		who = fmt.Sprintf("code after line %d that makes no call", e.Line)
	case e.Kind == step.Step || e.Implicit:
		who = "the scaler's step"
	}
	var m string
	if first == nil {
		m = fmt.Sprintf("Gradients that never carried a loss scale were divided by one: %s divided them by %s", who, num(divisor))
	} else {
		m = fmt.Sprintf("Gradients that were already unscaled%s were divided by the loss scale again: %s divided them by %s",
			after(first), who, num(divisor))
	}
	m += fmt.Sprintf(". The optimizer got 1/%s of the gradient.", num(divisor))
	ev := []Evidence{{"divided by", divisor}}
	if all, _ := s.Universe.Owned(e.Optimizer); p.On.Len() < all.Len() {
		m += " It happened to " + tensors(s.Universe.Members(p.On)) + " only."
	}
	if mv := s.Moves[b.Event].Only(b.On); len(mv) > 0 {
		if f, ok := mv.Factor(); ok {
			ev = append(ev, Evidence{"gradients were multiplied by", f})
		}
		ev = append(ev, Evidence{"norm before", mv.Before().Norm()}, Evidence{"norm after", mv.After().Norm()})
	}
	return m, ev
}

// after says where an earlier operation stood.
func after(e *step.Event) string {
	switch {
	case e.Line == 0:
		return ""
	case e.Inferred:
		return fmt.Sprintf(" (by code after line %d that makes no call)", e.Line)
	}
	return fmt.Sprintf(" (line %d)", e.Line)
}
