package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4007 = Rule{
	ID:       "OC4007",
	Title:    "a parameter counted twice in a norm, a clip or an unscale",
	Severity: Error,

	Meaning: `A tied weight is one tensor with two names. A list that was put together from parts of
the model holds it twice: its square enters the norm twice, and each multiplication
reaches the same gradient twice.

In a clip both meet. A gradient of norm 2, listed twice and clipped at 1, passes for
2.83 and is multiplied by 0.354 twice: 0.25 is left. With a second gradient of norm 2
beside it both should become 0.707; the tied one becomes 0.167, the other 0.577. In an
unscale the tied weight is divided by S twice while all others are right. In a measured
model that did so with its tied weight, the gradient kept 0.77 to 0.94 of its norm, at
a cosine of 0.78 to 0.94 with the true one.

model.parameters() gives each tensor once; clip_grad_norm_ takes any list as it comes.
An optimizer only warns of a duplicate within one group, and GradScaler then divides it
twice. A weight shared by two optimizers is not noticed at all: unscaling both divides
it twice.`,

	Wrong: `import torch

# model.head.weight is model.encoder.embedding.weight
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
params = [*model.encoder.parameters(), *model.head.parameters()]

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

# model.head.weight is model.encoder.embedding.weight
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
params = list(model.parameters())  # each tensor once

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Take model.parameters(), or remove the doubles from your own list with
list(dict.fromkeys(params)). A loop that divides module by module needs the same. Give
a shared weight to one optimizer only.`},
	},

	Needs: "the tensors handed to a clip or a norm and which of them are one, or gradients before and after an unscale",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: the list is used as given, duplicates included",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, _unscale_grads_: walks the parameter groups as they are",
		"pytorch/pytorch #40967: duplicate parameters in one group are a warning",
		"modelscope/twinkle PR #290, pytorch/pytorch PR #88955: replicas counted again in a norm over ranks",
	},

	Explains: []string{"OC1002"},

	decide: decideOC4007,
}

func decideOC4007(r *Run) Outcome {
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i, e := range s.Events {
			if e.Kind != step.Clip && e.Kind != step.Norm || !e.Covers.Known || e.Kind == step.Clip && !clips(e) {
				continue
			}
			judged = true
			twice := s.CountedTwice(e)
			if len(twice) == 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: s.OwnerOf(s.Universe.Set(e.Covers.Value)), certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The %s was handed %s twice: its square counts twice in the norm, and a clip multiplies it twice.", e.Op, tensors(twice)),
						[]Evidence{{"tensors that were handed", len(e.Covers.Value)}, {"of them twice", tensors(twice)}}
				},
			})
		}
	}
	r.eachBreach("OC1002", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		all, _ := s.Universe.Owned(c.Optimizer)
		if !s.Events[b.Event].Inferred || p.On.Len() >= all.Len() || !s.OnceElsewhere(c, p, b.Event) {
			return
		}
		hits = append(hits, hit{
			story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				m, ev := tellOC1002(s, p, b)
				return "The loop that unscales meets " + tensors(s.Universe.Members(p.On)) + " twice. " + m, ev
			},
		})
	})
	return decided(hits, judged || r.scaled())
}
