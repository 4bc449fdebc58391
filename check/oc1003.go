package check

import (
	"fmt"
	"math"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1003 = Rule{
	ID:       "OC1003",
	Title:    "the optimizer consumed gradients that still carry the loss scale",
	Severity: Error,

	Meaning: `The loss was multiplied by the scale S, and nothing divided the gradients before the
optimizer read them. At S = 65536 SGD with a learning rate of 0.01 acts with 655.36
and usually dies within a few steps. That is the lucky case, because you see it.

Adam divides m by sqrt(v), and S cancels. In a measured run of AdamW with this fault
the loss at step 6 was 6.71430; with the same network and gradients that were divided
and clipped it was 6.71431. What is wrong lies elsewhere: m is S times too large and v
S squared, 4.3e9 times; eps has no effect; weight decay that is added to the gradient
(Adam, not AdamW) is 65536 times too weak; a moving scale would mix gradients of
different units in one state.

The same shortcut usually passes by the finiteness check, which sits in unscale_ and
in scaler.step. In that run the first overflow came at step 9. The step was taken, the
loss was NaN from step 10 on, and in the end so were all 1476 parameters. With a
second optimizer that is stepped directly the first one keeps the scaler satisfied,
and no exception warns you.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    optimizer.step()  # 65536 times the gradient, checked by nobody`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # divides, checks, and skips if it must
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Step every optimizer whose loss went through scaler.scale by scaler.step(optimizer),
none by optimizer.step(), and call scaler.update() once behind the last of them. If
you go on from a checkpoint of the broken run, start the optimizer's state afresh: v
is 2^32 times too large, and at beta2 = 0.999 it takes about 22000 steps to forget
that.`},
		{"Accelerate", `Give the model, the optimizer and the data to accelerator.prepare and call step on the
optimizer that it returns: that one goes through the scaler. The inner optimizer does
not.`},
		{"Lightning", `With manual optimization take the optimizer from self.optimizers(); its step goes
through the precision plugin. The object that you made in configure_optimizers does
not.`},
		{"Keras", `In a hand-written train step call apply on the LossScaleOptimizer, not on its
inner_optimizer, if the loss went through scale_loss.`},
	},

	Needs: "the gradients that the step read, or the optimizer's state before and after the step beside a known gradient",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, step: unscale_ if it was not called, then the optimizer's step if no Inf or NaN was found",
		"IAHispano/Applio PR #860: both optimizers also stepped directly",
		"nerfstudio-project/nerfacc #307: scaler used for scale() only, gradients 1024 times too large",
		"pytorch/vision PR #4874: a second optimizer.step() after scaler.step() and update()",
	},

	Explains: []string{"OC2001", "OC2002", "OC3002", "OC3008"},

	Tensors: true,

	decide: decideOC1003,
}

func decideOC1003(r *Run) Outcome {
	hits := r.errorHits("OC1003", "The optimizer stepped without its scaler, on gradients that still carry the loss scale, and update found no verdict.")
	if !r.scaled() && len(hits) == 0 {
		return r.lacks(noScale)
	}
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			p := &c.Parts[i]
			judged = judged || c.Outcome == step.Applied && p.State == step.Filled && p.Unit().Known() && !p.Claimed
		}
	})
	absorbed, undecided := r.absorbed(), false
	r.eachBreach("OC1003", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		scale, ok := b.Unit.IsScale()
		if !ok || r.silent() { // without calls the scale of a window is read off its unscale
			return
		}
		took, cos, seen := s.Consumed(c, p.On, r.Manifest.Optimizers[c.Optimizer])
		seen = seen && cos > 0.9
		h := hit{story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven}
		switch {
		case absorbed[c.Optimizer]:
			return
		case p.Claimed && !s.ReliesOnCalls(): // what stands in the buffer may be divided already
			undecided = true
			return
		case p.Claimed:
			h.certainty = Observed
		case !seen && !knownOptimizer(r.Manifest.Optimizers[c.Optimizer].Name):
			undecided = true // it may divide by the scale itself
			return
		}
		h.tell = func() (string, []Evidence) {
			m := fmt.Sprintf("The optimizer stepped on gradients that are still multiplied by the loss scale %s.", num(scale))
			ev := []Evidence{{"loss scale", scale}}
			if grads := s.NormOf(s.Events[c.Event].Before, p.On); grads.N > 0 {
				ev = append(ev, Evidence{"norm of the gradients in the buffer", grads.Norm()}, Evidence{"true norm", grads.Norm() / scale})
			}
			if seen {
				ev = append(ev, Evidence{"gradient that its state shows it took / the one in the buffer", took})
			}
			return m, ev
		}
		hits = append(hits, h)
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case judged && !undecided:
		return passed()
	}
	return noData("")
}

// absorbed lists the optimizers that take scaled gradients and mean to: one whose
// state shows that it divided them by the scale itself, or whose learning rate
// is divided by it (lr·S stays while S moves).
func (r *Run) absorbed() map[string]bool {
	out := map[string]bool{}
	type rate struct{ lr, scale float64 }
	rates := map[string]rate{}
	r.eachBreach("OC1003", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		scale, ok := b.Unit.IsScale()
		if !ok {
			return
		}
		if took, cos, seen := s.Consumed(c, p.On, r.Manifest.Optimizers[c.Optimizer]); seen && cos > 0.9 && took < 0.5 && took*scale < 2 {
			out[c.Optimizer] = true
		}
		if lr := s.Events[c.Event].LR; len(lr) > 0 {
			now := rate{lr[0], scale}
			if was, ok := rates[c.Optimizer]; ok && was.scale != scale && math.Abs(now.lr*now.scale/(was.lr*was.scale)-1) < 1e-6 {
				out[c.Optimizer] = true
			}
			rates[c.Optimizer] = now
		}
	})
	return out
}
