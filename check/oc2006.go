package check

import (
	"fmt"
	"math"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2006 = Rule{
	ID:       "OC2006",
	Title:    "a clip with a norm that was not finite ruined finite gradients",
	Severity: Error,

	Meaning: `A norm clip multiplies every gradient that it covers by max_norm / (norm + 1e-6), or
by 1 where that is more. One Inf anywhere makes the norm Inf and the coefficient 0:
healthy gradients become 0. One NaN makes it NaN, and all of them become NaN. On a
step that is then skipped as a whole this is harmless, and PyTorch's textbook loop
does it on every overflow. It is a fault when an optimizer whose own gradients were
finite goes on to consume what the clip left.

The usual way there is one clip over two optimizers. unscale_ judged them separately
and before the clip; found_inf of the second is 0, so scaler.step applies what the
joint norm did to it. In a measured run the norm was Inf at step 5, and 419 of the
second optimizer's 420 finite gradients were set to 0 and stepped on. At step 9 it was
NaN: 420 of 420. One step later the first optimizer had followed, and 840 parameters
were NaN, while each call in the loop was a documented one.

Zeros are not a skip either: m and v decay, the step count goes on, weight decay acts.
And a norm can be wrong without being Inf. A sentinel of -1 for "overflow", used as a
norm, turned a gradient of 2.0 into -2.000002, an ascent.`,

	Wrong: `import torch

params = [*encoder.parameters(), *head.parameters()]
slow = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
fast = torch.optim.AdamW(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    slow.zero_grad(); fast.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(head(encoder(x)), y)
    scaler.scale(loss).backward()
    scaler.unscale_(slow); scaler.unscale_(fast)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(slow)
    scaler.step(fast)  # steps on zeros or NaN if only the encoder overflowed
    scaler.update()`,

	Right: `import torch

params = [*encoder.parameters(), *head.parameters()]
slow = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
fast = torch.optim.AdamW(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    slow.zero_grad(); fast.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(head(encoder(x)), y)
    scaler.scale(loss).backward()
    scaler.unscale_(slow); scaler.unscale_(fast)
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
    if torch.isfinite(norm):  # one norm, one decision
        scaler.step(slow); scaler.step(fast)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Who shares a norm shares the verdict: step all optimizers of a joint clip or none.
scaler.update() still runs, with what unscale_ found. Or clip each optimizer's
parameters by their own norm; then one may step while the other skips.
error_if_nonfinite=True is no remedy: it raises on each ordinary overflow. A clip with
max_norm=inf, called only to read the norm, divides inf by inf on overflow: use
torch.nn.utils.get_total_norm.`},
		{"Lightning", `fabric.clip_gradients has error_if_nonfinite=True by default and raises on an ordinary
overflow; pass False, and let the scaler skip.`},
		{"JAX", `optax.clip_by_global_norm does the same to them. Put the check around the whole chain,
optax.apply_if_finite(optax.chain(clip, optimizer), n), so that it sees the gradients
before the clip does.`},
	},

	Needs: "gradients before and after a clip whose norm was not finite, and whether their optimizer stepped",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: the coefficient is multiplied whatever the norm is; pytorch/pytorch #46849",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py: found_inf is kept for each optimizer, update() joins them",
		"deepspeedai/DeepSpeed PR #8614: sentinel -1 as a norm, 2.0 became -2.000002",
		"Skovorp/feral PR #16: max_norm=inf writes NaN on overflow",
		"pytorch/pytorch #31367: a negative max_norm reverses gradients",
	},

	Tensors: true,

	decide: decideOC2006,
}

func decideOC2006(r *Run) Outcome {
	if !r.has(step.Clip, nil) { // one at infinity writes NaN as well: Inf / Inf
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	steps, undecided := 0, 0
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		steps++
		if c.Outcome != step.Applied {
			return
		}
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.State != step.Filled {
				continue
			}
			for _, w := range p.Words {
				e := s.Events[w.Op.Event]
				what, number := badCoefficient(e)
				if w.Op.Kind != step.Clip || what == "" {
					continue
				}
				damage, certainty := clipDamage(s, p, w)
				if certainty == "" {
					undecided++
				}
				if damage == "" {
					continue
				}
				hits = append(hits, hit{
					story: s, event: w.Op.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: certainty,
					tell: func() (string, []Evidence) {
						m := fmt.Sprintf("The clip's %s was %s; its coefficient was multiplied into finite gradients of this optimizer, which %s, and the optimizer stepped on them.",
							what, num(number), damage)
						ev := []Evidence{{what, number}}
						if mv := s.Seen(w.Op.Event, w.Op.On, p.On); len(mv) > 0 {
							ev = append(ev, Evidence{"norm of these gradients before the clip", mv.Before().Norm()},
								Evidence{"norm after", mv.After().Norm()}, Evidence{"elements that are not finite after", mv.After().NonFinite})
						}
						return m, ev
					},
				})
			}
		}
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case undecided > 0 || steps == 0:
		return noData("")
	}
	return passed()
}

// badCoefficient names the number that makes a clip's coefficient one that no
// clip should have: 0, NaN, or negative.
func badCoefficient(e *step.Event) (what string, number float64) {
	switch {
	case e.Norm.Known && !(e.Norm.Value >= 0 && !math.IsInf(e.Norm.Value, 1)):
		return "norm", e.Norm.Value
	case e.Threshold.Known && e.Threshold.Value < 0 && e.Rule != "value":
		return "threshold", e.Threshold.Value
	}
	return "", 0
}

// clipDamage says what a clip whose norm was not finite did to gradients that
// were: the numbers tell; without them a verdict does that found these
// gradients finite. No certainty: it cannot be told.
func clipDamage(s *evidence.Story, p *step.Part, w step.Word) (damage string, certainty Certainty) {
	if mv := s.Seen(w.Op.Event, w.Op.On, p.On); len(mv) > 0 {
		before, after := mv.Before(), mv.After()
		f, _ := mv.Factor()
		switch {
		case before.NonFinite > 0 || before.Max == 0:
			return "", Proven
		case after.NonFinite > 0:
			return "became NaN", Proven
		case after.Zero():
			return "became zero", Proven
		case f < 0:
			return "changed sign", Proven
		}
		return "", Proven
	}
	e := s.Events[w.Op.Event]
	if what, _ := badCoefficient(e); what == "threshold" {
		return "change sign then", Observed
	}
	if !p.Verdict.Taken || s.Looked {
		return "", ""
	}
	if p.Verdict.NonFinite {
		return "", Observed
	}
	return "are multiplied by 0 or NaN then", Observed
}
