package check

import (
	"fmt"
	"slices"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc3004 = Rule{
	ID:       "OC3004",
	Title:    "the scale updated between backward and unscale, or before the step's verdict",
	Severity: Error,

	Meaning: `Gradients carry the scale that multiplied their loss. If the scale is updated before
they are divided, they are divided by another number: on a growth step a true gradient
of 1 arrives as 0.5, after an overflow as 2. And an update before the verdict of this
step acts on an older one: the scale answers an overflow one step late.

Between unscale_ and step the update wipes the scaler's memory instead. The step then
sees gradients that nobody has unscaled, as far as it knows, and divides a second
time: 1/65536. If the update was moved there, PyTorch raises one iteration later, with
a text about something else: "unscale_() is being called after step()." If it is one
more update, such as update(new_scale) for a scale of your own, nothing is said.

A wrong divisor shows only on steps where the scale moves, a growth in 2000 steps by
default, and an active clip hides even those: it brings the halved gradient to the
same norm. That is how it could stay in a framework: DeepSpeed updates its scale
before it divides, so a step on which the scale grows uses half the gradient. That one
is a defect of the framework and reported as such, not as yours.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    if step > 0:
        scaler.update()  # the last step's verdict, but this step's gradients are waiting
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Make scaler.update() the last call of the iteration, behind every scaler.step and
before the next scaler.scale. A scale that you set yourself goes there too:
update(new_scale) anywhere else changes what unscale_ divides by, or makes step forget
that it was called.`},
		{"DeepSpeed", `Nothing in your script: the order is inside the engine's step. Growth steps are rare,
and a static "loss_scale" has none.`},
		{"JAX", `With jmp, unscale with the loss_scale that scaled the loss, and only then bind the
result of adjust to the name.`},
	},

	Needs: "the order of backward, unscale, step and update calls of one scaler, or gradients before and after an unscale on a step whose scale moved",

	Sources: []string{
		`PyTorch 2.15.0, torch/amp/grad_scaler.py: update() clears what unscale_ recorded; "unscale_() is being called after step().", "No inf checks were recorded prior to update."`,
		"DeepSpeed 0.19.8, deepspeed/runtime/fp16/fused_optimizer.py, step: _update_scale before unscale_and_clip_grads; zero/stage_1_and_2.py alike",
		"deepspeedai/DeepSpeed PR #8588: true gradient 1, gradient used 0.5 on growth steps",
	},

	Explains: []string{"OC1001", "OC1002", "OC1005", "OC3003", "OC3008"},

	decide: decideOC3004,
}

func decideOC3004(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	hits := r.errorHits("OC3004", "The scale was updated between the backward and the verdict on its gradients.")
	if len(hits) == 0 && (!r.scaled() || !r.has(step.UpdateScale, nil)) {
		return r.lacks("no call updates the scale")
	}
	gaps, judged := false, false
	for _, s := range r.Stories {
		gaps = gaps || s.Gaps
	}
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			for _, w := range c.Parts[i].Words {
				judged = judged || w.Op.Kind == step.Unscale
			}
		}
		c.Breaches("OC3004", func(p *step.Part, b step.Breach) {
			if s.Events[b.Event].Inferred && s.Events[c.Event].Via == "optimizer" {
				return // divided by hand, by the scale that they carry: perhaps before the update
			}
			h := hit{story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed}
			var divisor float64
			var update *step.Event
			for _, w := range p.Words {
				switch {
				case w.Op.Kind == step.Backward:
					update = nil
				case w.Op.Kind == step.UpdateScale && w.Op.Event < b.Event && carries(p, w.Op.Scaler):
					update = s.Events[w.Op.Event]
				case w.Op.Kind == step.Unscale && w.Op.Event == b.Event:
					divisor = w.Op.Divisor
				}
			}
			if update == nil {
				return // of a scaler whose loss may have filled other gradients
			}
			carried, scaled := b.Unit.IsScale()
			if scaled && carried != divisor && c.Outcome == step.Applied {
				h.certainty = Proven
			}
			h.idle = scaled && carried == divisor || c.Outcome != step.Applied
			h.tell = func() (string, []Evidence) {
				m := fmt.Sprintf("The scale was updated%s after the backward and before these gradients were unscaled%s.", after(update), atLine(s, b.Event))
				if len(p.Terms) > 1 {
					m += " With micro-batches update() belongs behind the step of the last one, inside the same if."
				}
				ev := []Evidence{{"divided by", divisor}}
				if scaled {
					ev = append([]Evidence{{"scale that the gradients carry", carried}}, ev...)
					if carried != divisor {
						m += fmt.Sprintf(" They carry %s and were divided by %s: the optimizer got %s times the gradient.", num(carried), num(divisor), num(carried/divisor))
					}
				}
				return m, ev
			}
			hits = append(hits, h)
		})
	})
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case gaps || !judged:
		return noData("")
	}
	return passed()
}

// carries reports whether gradients carry the scale of a scaler for certain: one
// of its losses is known to have filled them, or all that may have filled them
// are its own.
func carries(p *step.Part, scaler string) bool {
	all := true
	for _, t := range p.Terms {
		own := slices.Contains(t.Scalers, scaler)
		if own && t.Certain {
			return true
		}
		all = all && (own || t.Stale)
	}
	return all
}
