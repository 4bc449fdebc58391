package check

import (
	"fmt"

	"ordercheck/evidence"
)

var oc4006 = Rule{
	ID:       "OC4006",
	Title:    "ranks use different loss scales",
	Severity: Error,

	Meaning: `A reduction adds numbers and knows nothing of units. If one rank multiplied its loss by
65536 and another by 16384, the mean is a sum of both units, and no division is right
for it. The rank with 65536 gets its own gradient whole and a quarter of the other's;
the rank with 16384 gets its own whole and four times the other's. The batches no
longer weigh the same, and one buffer means something else on each rank.

In a measured run with two scales a factor of 4 apart, the true mean at step 23 had a
norm of 2.37. One rank arrived at 0.948 and left that alone, the other at 3.79 and
clipped it to 1.0. After 24 steps copies of one parameter were up to 0.0077 apart.

It is silent because a scaler talks to nobody and DistributedDataParallel does not know
of it: scales agree only as long as they began alike and met the same verdicts. Usually
one rank writes the log, and its norm and loss look plausible. Two common ways there
are a scaler restored on some ranks only, and verdicts that were not joined (OC4005,
which is then the root).`,

	Wrong: `import os
import torch

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
if os.path.exists("scaler.pt"):  # written by rank 0, on its own disk
    scaler.load_state_dict(torch.load("scaler.pt"))

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
import torch.distributed as dist

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
state = [torch.load("scaler.pt") if dist.get_rank() == 0 else None]
dist.broadcast_object_list(state, src=0)
scaler.load_state_dict(state[0])

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Create the scaler with the same arguments on all ranks, restore it on all of them from
one state, and join the verdicts, so that each update is the same everywhere. After a
resume compare scaler.get_scale() over the ranks once. A policy of your own that looks
at local numbers has to reduce them before it decides.`},
		{"JAX", `Under pmap keep the loss scale replicated like the parameters. It stays equal if the
finite flag does: compute that from gradients that were averaged over the axis.`},
	},

	Needs: "the scale of every rank on the same steps",

	Sources: []string{
		"NVIDIA/apex #1135: overflow flags not joined over the ranks",
		"NVIDIA-NeMo/Megatron-Bridge PR #5591: overflow flags of several scalers not joined",
		"PyTorch 2.15.0, torch/amp/grad_scaler.py: a scaler communicates with no other rank",
	},

	decide: decideOC4006,
}

func decideOC4006(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.scaled() {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	for _, d := range evidence.ScalesByRank(r.Stories) {
		judged = true
		if d.Same {
			continue
		}
		hits = append(hits, hit{
			story: r.Stories[d.Rank], event: d.Event, attempt: d.Attempt, certainty: Proven, idle: !r.Stories[d.Rank].SteppedAt(d.Attempt),
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("This rank's loss was multiplied by %s and that of rank %d by %s: the ranks' gradients are combined in different units.", num(d.Scale), r.Stories[0].Rank, num(d.First)),
					[]Evidence{{"scale of this rank", d.Scale}, {fmt.Sprintf("scale of rank %d", r.Stories[0].Rank), d.First}}
			},
		})
	}
	return decided(hits, judged)
}
