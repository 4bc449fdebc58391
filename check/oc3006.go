package check

import (
	"fmt"

	"ordercheck/step"
)

var oc3006 = Rule{
	ID:       "OC3006",
	Title:    "the state of the scaler lost: the scale is back at its initial value",
	Severity: Error,

	Meaning: `The scale and its count of clean steps are state of the training, like m and v. Here
they began afresh, after a resume or in the middle of a run: the checkpoint holds the
model and the optimizer and no scaler, or the scaler is made anew in each epoch.

If the run had settled lower, it pays in skipped steps. One that needs 256 and comes
back at 65536 loses its first 8 batches, and a schedule that counts iterations runs on
without them. In a measured loop that made its scaler anew every 6 steps, at 2^20, 13
of 24 steps were skipped. If the run had settled higher, nothing is skipped and nothing
shows: from 65536 to 2^20 it takes four doublings, 8000 clean steps by default, and
until then gradients up to 16 times larger than before are flushed to zero. And where a
run is interrupted more often than every 2000 steps, the count never arrives: its scale
can fall and not grow.

It is silent because a fresh scaler is a valid one. PyTorch prints nothing on a skip,
and the loss has at most a short flat piece. What is lost for good is the comparison:
the resumed run is not the uninterrupted one.`,

	Wrong: `import torch

last = torch.load("last.pt")
model.load_state_dict(last["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
optimizer.load_state_dict(last["optimizer"])
scaler = torch.amp.GradScaler("cuda")  # begins at 65536 again

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")`,

	Right: `import torch

last = torch.load("last.pt")
model.load_state_dict(last["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
optimizer.load_state_dict(last["optimizer"])
scaler = torch.amp.GradScaler("cuda")
scaler.load_state_dict(last["scaler"])

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(state | {"scaler": scaler.state_dict()}, "last.pt")`,

	Mend: []Remedy{
		{"PyTorch", `Make one scaler for the whole run. Save scaler.state_dict() after update(), beside the
model and the optimizer, and load it in front of the loop; it may be loaded before
anything was scaled. The state of a disabled scaler is an empty dict, which an enabled
one refuses with a RuntimeError.`},
		{"Accelerate", `accelerator.save_state and accelerator.load_state include the scaler.`},
		{"Lightning", `trainer.fit(model, ckpt_path="last.ckpt") restores the precision plugin and with it the
scaler. load_from_checkpoint restores the model alone.`},
		{"DeepSpeed", `engine.save_checkpoint and engine.load_checkpoint keep the scale; do not save the
module's state dict by hand instead.`},
		{"JAX", `Keep flax's DynamicScale, or jmp's loss scale, in the train state that is saved.`},
	},

	Needs: "where scalers are made and loaded, and the scale before and after that",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py, state_dict: scale, growth factor, backoff factor, growth interval, count of clean steps",
		"huggingface/transformers #34053: 256 before the resume, 65536 after, an overflow and a shifted schedule; PR #11663 added scaler.pt",
		"conservationtechlab/animl-py #298: scaler made anew in each epoch",
		"ultralytics/ultralytics PR #22189: NaN after a resume, no scaler in the checkpoint",
		"allenai/tango #154, PolymathicAI/the_well #77; facebookresearch/metaseq #3: the scale depends on the restarts",
	},

	decide: decideOC3006,
}

func decideOC3006(r *Run) Outcome {
	if !r.scaled() || !r.has(step.ScalerCreate, nil) {
		return r.lacks("no scaler is made in this record")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		losses := s.LostScalers()
		judged = true
		for _, l := range losses {
			hits = append(hits, hit{
				story: s, event: l.Event, attempt: l.Attempt, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("A new scaler took the place of one that had come to %s, and began at its initial scale %s: the state of the first one was not loaded.", num(l.Before), num(l.After)),
						[]Evidence{{"scale before", l.Before}, {"scale after", l.After}}
				},
			})
		}
	}
	return decided(hits, judged)
}
