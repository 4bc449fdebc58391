package check

import "fmt"

var oc2011 = Rule{
	ID:       "OC2011",
	Title:    "optimizer state lost on a resume",
	Severity: Error,

	Meaning: `The parameters came back from the checkpoint; m, v and the step count did not. Adam
begins anew, with m = v = 0, and its first update is then lr * sign(g): every element
moves by the whole learning rate, whatever its gradient and however noisy.

In a measured run of AdamW a resume after 300 steps made the first step 3.4 times as
long as the one that it replaced, after 1000 steps 5.2 times. There the median element
moved by 1.0 times the learning rate instead of 0.12, and for 20 steps the updates
were more than a fifth too long. The gap is widest late in training, where no warm-up
stands to cushion it. SGD errs the other way: with a momentum of 0.9 and a steady
gradient the first step is a tenth of what it was.

Nothing raises, since a fresh optimizer is a valid one. The loss rises for some steps
and comes down (in that run it was 0.174 instead of 0.168 over the next 60), so it
passes for the restart's own noise. A long run that is resumed often pays each time.
Restoring the schedule and the scale, but not the state, makes it worse: the full
learning rate at once. An optimizer that is built anew behind load_state_dict, a state
that was loaded into an optimizer which had none yet, and a file that is missing and
only read if it is there all end here.`,

	Wrong: `import torch

checkpoint = torch.load("last.pt")
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)  # m = v = 0, step 0
scaler = torch.amp.GradScaler("cuda")
scaler.load_state_dict(checkpoint["scaler"])
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

checkpoint = torch.load("last.pt")
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
optimizer.load_state_dict(checkpoint["optimizer"])
scaler = torch.amp.GradScaler("cuda")
scaler.load_state_dict(checkpoint["scaler"])
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Save and load model, optimizer, scaler and scheduler together. Load the optimizer's
state last, into the object that will step, and see that its step count is the one
that was saved. torch.distributed.checkpoint fills only what is there: take the
template from get_optimizer_state_dict, which makes the state first. Float32 masters
are state too.`},
		{"Accelerate", `accelerator.save_state and load_state hold all that went through prepare. The Hugging
Face Trainer loads optimizer and scheduler only if both files are there, and with
save_only_model=True they are not.`},
		{"Lightning", `Resume with trainer.fit(model, ckpt_path=...). load_from_checkpoint restores the
weights alone, and a checkpoint of save_weights_only=True holds no more.`},
		{"DeepSpeed", `Leave load_optimizer_states=True, the default, in engine.load_checkpoint.`},
		{"JAX", `Save opt_state beside params; optimizer.init on a resume starts anew.`},
	},

	Needs: "optimizer state at the save and around the first step of the resumed run, or the record of what was loaded",

	Sources: []string{
		"KempnerInstitute/KempnerForge PR #115: moments silently dropped by a distributed load into a fresh optimizer",
		"OpenNMT/OpenNMT-py #617: the optimizer built anew behind the load",
		"EvolvingLMMs-Lab/OneVision-Encoder PR #65: m, v and step were not saved, the loss spiked after each resume",
		"transformers 5.24.0, trainer.py, _load_optimizer_and_scheduler: loads if the files exist",
		"NVIDIA/Megatron-LM #602: state empty in the checkpoint, because every step had been skipped",
	},

	decide: decideOC2011,
}

func decideOC2011(r *Run) Outcome {
	resumed := false
	for _, o := range r.Manifest.Optimizers {
		resumed = resumed || o.Continues != nil
	}
	if !resumed {
		return r.lacks("no optimizer takes another one's place")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for id, o := range r.Manifest.Optimizers {
			if o.Continues == nil {
				continue
			}
			before, ok1 := s.StepCount(*o.Continues, true)
			after, ok2 := s.StepCount(id, false)
			if !ok1 || !ok2 {
				continue
			}
			judged = true
			if before < 2 || after > 1 {
				continue
			}
			first := s.FirstStep(id)
			hits = append(hits, hit{
				story: s, event: first, attempt: s.Events[first].Attempt, optimizer: id, certainty: Proven,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The optimizer took the place of one that had made %s steps, and began at step %s: its moments and its step count were lost.", num(before), num(after)),
						[]Evidence{{"step count before", before}, {"step count after its first step", after}}
				},
			})
		}
	}
	return decided(hits, judged)
}
