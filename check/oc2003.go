package check

import (
	"fmt"
)

var oc2003 = Rule{
	ID:       "OC2003",
	Title:    "a skipped step moved the optimizer's state",
	Severity: Error,

	Meaning: `A step that overflowed must leave no trace but a smaller scale. Here the parameters
stayed where they were and something else did not: m and v decayed as if a zero
gradient had come in, Adam's step count went on, or another accumulator of the
optimizer moved. It happens in optimizers that handle found_inf themselves, and
wherever "skip" was written as "use zeros".

Each such skip multiplies m by 0.9 and v by 0.999. A burst of 17 skips, as after a
resume whose scale restarts at 2^32 and comes down to 2^15, leaves 17 % of the
momentum. A step count that runs ahead spoils the bias correction: if the first real
step is counted as the second its update is 0.74 of what it should be, as the sixth
0.52.

You will not see it in the loss. In a measured series with 5 skips a run, loops that
advanced m, v, step count and learning rate on them ended at 1.018, right ones at
1.019. What is lost is that the run no longer depends on its data alone: how often it
overflowed, and so the initial scale, is now part of the result, and a run without
loss scaling can no longer be compared with it. So look at the counters: after n good
steps the count is n.`,

	Wrong: `import torch

class Momentum(torch.optim.SGD):
    _step_supports_amp_scaling = True  # GradScaler sets found_inf, grad_scale
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            g = torch.where(self.found_inf > 0, 0.0, p.grad / self.grad_scale)
            buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            buf.mul_(0.9).add_(g)  # decays on a skipped step too
            p.sub_(self.param_groups[0]["lr"] * torch.where(self.found_inf > 0, 0.0, buf))

optimizer, scaler = Momentum(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

class Momentum(torch.optim.SGD):
    _step_supports_amp_scaling = True  # GradScaler sets found_inf, grad_scale
    @torch.no_grad()
    def step(self):
        if self.found_inf:
            return  # nothing moves
        for p in self.param_groups[0]["params"]:
            buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            buf.mul_(0.9).add_(p.grad / self.grad_scale)
            p.sub_(self.param_groups[0]["lr"] * buf)

optimizer, scaler = Momentum(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `The optimizers in torch.optim are right: scaler.step does not call them on overflow,
and the fused ones take the step count back. In an optimizer of your own that sets
_step_supports_amp_scaling, return before anything moves if found_inf is set; if you
must not wait for the device, keep the old m, v and count with torch.where, as you
keep the parameters. In a loop of your own, do not call step at all.`},
		{"Keras", `Keras 3 leaves the inner optimizer alone on a skip. In tf_keras the optimizer's
iterations advance on skipped steps by design, and with them Adam's bias correction
and the schedule.`},
		{"JAX", `Select params and opt_state alike: jmp.select_tree(finite, new, old), or jnp.where
over both trees with flax's is_fin. optax.apply_if_finite keeps the inner state of a
rejected update. Zeroing the gradients and calling update does not.`},
	},

	Needs: "optimizer state before and after a skipped step",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, step: what a fused optimizer is handed; torch/optim/adam.py, _fused_adam: found_inf is subtracted from the step counts again",
		"marin-community/levanter PR #973: skip by zeroed gradients changed the inner optimizer's state",
		"allenai/OLMo-core PR #309: step state of SkipStepAdamW on skipped steps",
		"tf_keras, tf_keras/mixed_precision/loss_scale_optimizer.py (2026-03): iterations advance on a skipped step",
		"optax 0.2.8, optax/transforms/_conditionality.py, apply_if_finite",
	},

	Tensors: true,

	decide: decideOC2003,
}

func decideOC2003(r *Run) Outcome {
	var hits []hit
	skips, looked := 0, 0
	for _, s := range r.Stories {
		lies := contradicted(s)
		for _, k := range s.Skips() {
			if lies[k.Event] {
				continue // its parameters moved: it was no skip
			}
			skips++
			if !k.Looked {
				continue
			}
			looked++
			if len(k.Moved) == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: k.Event, attempt: k.Attempt, optimizer: k.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					m := fmt.Sprintf("The step was skipped, yet state of the optimizer moved: %s.", tensors(k.Moved))
					ev := []Evidence{{"tensors that moved", len(k.Moved)}, {"tensors of state", k.Tensors}}
					for _, kind := range k.Kinds {
						ev = append(ev, Evidence{kind.Name + " multiplied by", kind.Factor})
					}
					return m, ev
				},
			})
		}
	}
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case skips == 0:
		return r.lacks("no step was skipped")
	case looked > 0:
		return passed()
	}
	return noData("")
}
