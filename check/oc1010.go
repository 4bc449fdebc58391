package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc1010 = Rule{
	ID:       "OC1010",
	Title:    "stale gradients: those of an earlier step or of another loss are in the sum",
	Severity: Error,

	Meaning: `backward adds to what is in .grad. If an earlier step's gradients were not cleared, or
another loss has filled the buffer since they were, the step gets a sum that belongs
to no batch.

What it does depends on the unit of the leftover. Where zero_grad is simply missing,
the leftover has been divided and the new gradient carries S, so the old one weighs
1/S: in a measured run the norms were right within 0.0011 % for nine steps. Then came
the first overflow. Inf plus anything is Inf, so every step from there on was skipped,
51 in a row, and each halved the scale, which ended at 0. What you see is a scale that
collapses, and the cause is a line that is not there.

In a GAN the leftover weighs in full. The generator's loss runs through the
discriminator D and fills its buffers, in the same unit, behind the zero_grad that was
to empty them for the next step. In a measured run D's norm was 1.5 to 2.2 times the
right one at a cosine of 0.81 to 0.99 with it, and one of its steps was skipped for an
Inf that the generator had left. D learns in part to be fooled, and nothing raises.

Only tensors that a backward fills can be judged. Float32 masters are overwritten by
copies: nothing goes stale there.`,

	Wrong: `import torch

opt_d = torch.optim.AdamW(D.parameters(), lr=2e-4)
opt_g = torch.optim.AdamW(G.parameters(), lr=2e-4)
scaler = torch.amp.GradScaler("cuda")
for real, z in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        fake = G(z)
        loss_d = d_loss(D(real), D(fake.detach()))
    scaler.scale(loss_d).backward()
    scaler.step(opt_d); opt_d.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss_g = g_loss(D(fake))
    scaler.scale(loss_g).backward()  # fills D's gradients too: they wait for loss_d
    scaler.step(opt_g); opt_g.zero_grad()
    scaler.update()`,

	Right: `import torch

opt_d = torch.optim.AdamW(D.parameters(), lr=2e-4)
opt_g = torch.optim.AdamW(G.parameters(), lr=2e-4)
scaler = torch.amp.GradScaler("cuda")
for real, z in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        fake = G(z)
        loss_d = d_loss(D(real), D(fake.detach()))
    opt_d.zero_grad(); scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    with torch.autocast("cuda", dtype=torch.float16):
        loss_g = g_loss(D(fake))
    opt_g.zero_grad(); scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Clear an optimizer's gradients right in front of the first backward that is meant for
it, not behind its step: then it does not matter who has filled them since. Or keep a
loss out of a network, with loss_g.backward(inputs=list(G.parameters())). A guard of
your own that leaves the iteration early must not jump over the zero_grad.`},
		{"Lightning", `With manual optimization put self.toggle_optimizer(opt) and self.untoggle_optimizer
around each part, so that its backward fills that optimizer's parameters only, and
call opt.zero_grad() in front of manual_backward.`},
	},

	Needs: "the order of zero_grad, backward and step calls of each optimizer, or its gradients before and after a backward",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, unscale_: divides in place, also on a step that is then skipped; Inf stays in .grad",
		"PaddlePaddle/Paddle #67895: clear_gradient() missing, gradients stayed Inf and the scale fell to 0",
		"karpathy/llm.c PR #548: the first step's gradients deposited twice",
		"tenstorrent/tt-blacksmith PR #711, meta-pytorch/torchforge PR #71: zero_grad left out",
	},

	Explains: []string{"OC3005"},

	decide: decideOC1010,
}

func decideOC1010(r *Run) Outcome {
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			judged = judged || c.Parts[i].State == step.Filled && s.SawFreshness(&c.Parts[i])
		}
	})
	if r.silent() {
		return noData(needCalls)
	}
	var hits []hit
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		c.Breaches("OC1010", func(p *step.Part, b step.Breach) {
			hits = append(hits, hit{
				story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) { return tellOC1010(s, c, p) },
			})
		})
	})
	return decided(hits, judged)
}

func tellOC1010(s *evidence.Story, c *step.Consumption, p *step.Part) (string, []Evidence) {
	var old step.Term
	first := -1 // this step's first backward
	for _, t := range p.Terms {
		switch {
		case t.Stale:
			old = t
		case first < 0:
			first = t.Event
		}
	}
	buffer := s.NormOf(s.Events[max(first, 0)].Before, p.On)
	from := s.Events[old.Event]
	m := "Gradients of an earlier backward were still in the buffer when this step's were added to them"
	if from.Attempt.Known {
		m += fmt.Sprintf(": they are of step %d%s", from.Attempt.Value, atLine(s, old.Event))
	}
	if c.Outcome == step.Skipped {
		m += ". The sum was not finite and the step was skipped"
	} else {
		m += ". They were stepped together"
	}
	return m + ".", []Evidence{
		{"norm that was in the buffer before the backward", buffer.Norm()},
		{"elements in it that are not finite", buffer.NonFinite},
		{"tensors", tensors(s.Universe.Members(p.On))},
	}
}
