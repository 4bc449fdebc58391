package check

import (
	"fmt"

	"ordercheck/step"
)

var oc1014 = Rule{
	ID:       "OC1014",
	Title:    "the declared clip never ran, or ran on other tensors than those that are stepped",
	Severity: Error,

	Meaning: `A max_norm is declared and the option or the call is there, but no gradient that the
optimizer reads is ever limited. Either the clip does not run, or it is handed no
tensors, or it is handed others than those that are stepped.

Two ways have been measured, in runs of 24 steps with a threshold of 1.0.
model.parameters() is a generator, and an optimizer that was given it has used it up:
the clip gets 0 tensors and returns 0.0, 24 times. And in an FP16 model with float32
masters a clip of model.parameters() behind the copy shortens gradients that nobody
reads any more, while its norms, the right ones, fill the log. In both, 13 steps were
above the threshold and the optimizer got up to 3.84 times what a clip would have let
through. Other ways are an option that one path of a framework drops, the parameters
of a submodule, and a list that was made before layers were added.

No curve shows it before the first spike, and then the run does what it would have
done without the option. PyTorch warns of an empty generator, once among the first
lines of the log; older versions do not.

A clip in front of the copy into masters is right, for it acts upstream of what is
stepped. And an optimizer that is no longer stepped needs no clip.`,

	Wrong: `import torch

params = model.parameters()
optimizer = torch.optim.AdamW(params, lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(params, 1.0)  # a generator, used up by the optimizer
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

params = list(model.parameters())
optimizer = torch.optim.AdamW(params, lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

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
		{"PyTorch", `Clip what the optimizer holds, [p for group in optimizer.param_groups for p in
group["params"]], and keep parameters in a list wherever they are used twice. With
masters, clip the masters, or clip the model's gradients before they are copied. One
step is enough to see whether it works: the norm of what the optimizer holds, taken
once more behind the clip, is not above max_norm.`},
		{"Accelerate", `Under DeepSpeed accelerator.clip_grad_norm_ clips nothing and only returns the
engine's norm: set "gradient_clipping" in the DeepSpeed configuration.`},
		{"Lightning", `A configure_gradient_clipping of your own has to call self.clip_gradients: overriding
it replaces the clip.`},
		{"DeepSpeed", `Set "gradient_clipping" in the configuration. The FP16 optimizers step float32 copies
of their own, so a clip of model.parameters() behind the engine's back is not theirs.`},
		{"JAX", `The clip has to be in the chain whose update is called:
optax.chain(optax.clip_by_global_norm(1.0), optimizer).`},
	},

	Needs: "the declared clip, and the tensors that each clip covered beside those that are stepped, or gradients at the step",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/utils/clip_grad.py: the norm of no gradients is 0.0; a warning for an empty generator (PR #151529)",
		"pytorch/pytorch #148259, pytorch/torchtitan PR #1258: a generator that was already used up",
		"Lightning-AI/pytorch-lightning #2556, fastai/fastai2 #528, NVIDIA/apex #195: model and master parameters confused",
		"MakazhanAlpamys/Soup PR #750: max_grad_norm dropped on one backend",
	},

	decide: decideOC1014,
}

func decideOC1014(r *Run) Outcome {
	declared := r.Manifest.Declared.Clip != nil
	if !r.has(step.Clip, clips) && !declared {
		return r.lacks("nothing is clipped")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			c := &s.Machine.Consumptions[i]
			if c.Outcome != step.Applied {
				continue
			}
			clip, on, why := s.MissedBy(c)
			judged = true
			if clip < 0 {
				continue
			}
			e := s.Events[clip]
			stepped := s.NormOf(s.Events[c.Event].Before, on)
			hits = append(hits, hit{
				story: s, event: clip, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
				idle: !(stepped.Norm() > e.Threshold.Value),
				tell: func() (string, []Evidence) {
					ev := []Evidence{{"threshold", e.Threshold.Value}, {"norm that the clip saw", e.Norm.Value}}
					if stepped.N > 0 {
						ev = append(ev, Evidence{"norm of the gradients that were stepped", stepped.Norm()})
					}
					return why, ev
				},
			})
		}
		if declared && !r.has(step.Clip, nil) && r.MaxNorm.Known {
			for i := range s.Machine.Consumptions {
				c := &s.Machine.Consumptions[i]
				on, _ := s.Universe.Owned(c.Optimizer)
				st := s.NormOf(s.Events[c.Event].Before, on)
				if c.Outcome != step.Applied || st.N == 0 || st.NonFinite > 0 || st.Norm() <= r.MaxNorm.Value*(1+1e-3) || !s.TrueAt(c) {
					continue
				}
				hits = append(hits, hit{
					story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
					tell: func() (string, []Evidence) {
						return fmt.Sprintf("A clip at %s is declared and none ran: gradients with norm %s were stepped.", num(r.MaxNorm.Value), num(st.Norm())),
							[]Evidence{{"declared threshold", r.MaxNorm.Value}, {"norm that was stepped", st.Norm()}}
					},
				})
			}
		}
	}
	return decided(hits, judged)
}
