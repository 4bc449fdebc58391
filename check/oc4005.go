package check

import (
	"fmt"

	"ordercheck/evidence"
)

var oc4005 = Rule{
	ID:       "OC4005",
	Title:    "ranks act differently on one step: some apply it, others skip it",
	Severity: Error,

	Meaning: `The ranks hold one model between them, so a step belongs to all of them or to none.
Here each rank followed its own verdict, and they disagreed. Plain data parallel is
safe by nature: an Inf on one rank is an Inf in the mean, and everyone finds it. At
risk are ranks that own different parts (FSDP, ZeRO, pipeline and tensor parallel) and
guards that look at one rank's loss or norm.

In a measured run of two ranks, each owning a part of the parameters, the part of rank
1 overflowed at step 5. Rank 1 skipped and halved its scale. Rank 0 had found nothing
and stepped, on gradients that a clip with the joint norm of Inf had made zero. From
then on one loss was multiplied by 131072, the other by 65536, and their gradients were
averaged. After 24 steps Adam's counts stood at 22 and 20, the scales at 131072 and
32768.

No call complains: a skip prints nothing, each rank's log is sound in itself, and
nobody compares them. The lucky case is the one that hangs, because a rank that left
the step early is missing in the next collective call.`,

	Wrong: `import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")  # asks this rank's shards only

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    model.clip_grad_norm_(1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = ShardedGradScaler("cuda")  # joins what the ranks found

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    model.clip_grad_norm_(1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `With FullyShardedDataParallel use ShardedGradScaler; if the optimizer is fused, call
its unscale_ yourself, since the verdicts are joined there. With fully_shard the
ordinary GradScaler joins them. By hand: all_reduce found_inf with MAX over all ranks
that hold a part of the model, before any rank decides. A guard of your own reduces
what it looks at first, and tests it afterwards.`},
		{"JAX", `Under pmap or shard_map give axis_name to the value_and_grad of flax's DynamicScale: it
averages before it looks. With jmp take lax.pmean of the gradients first, then
jmp.all_finite.`},
	},

	Needs: "the step calls of all ranks with their outcome, or each rank's parameters or step counts around a step",

	Sources: []string{
		"PyTorch 2.15.0, torch/distributed/fsdp/sharded_grad_scaler.py, unscale_: found_inf is summed over the ranks",
		"facebookresearch/fairscale #180: sharded optimizer, some ranks skip, deadlock",
		"deepspeedai/DeepSpeed PR #994, hpcaitech/ColossalAI PR #1175: overflow in one pipeline stage only",
		"ecmwf/WeatherGenerator PR #2718: rank 0 alone decided; NVIDIA-NeMo/Automodel PR #2468: each rank decided for itself",
	},

	Explains: []string{"OC2006", "OC4006"},

	decide: decideOC4005,
}

func decideOC4005(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	var hits []hit
	judged := false
	for _, at := range evidence.Together(r.Stories) {
		judged = true
		applied, skipped := at.Split()
		if len(applied) == 0 || len(skipped) == 0 {
			continue
		}
		c := at.On[skipped[0]]
		hits = append(hits, hit{
			story: r.Stories[skipped[0]], event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				return fmt.Sprintf("%d ranks applied this step and %d skipped it: their parameters part here.", len(applied), len(skipped)),
					[]Evidence{{"ranks that applied", len(applied)}, {"ranks that skipped", len(skipped)}}
			},
		})
	}
	return decided(hits, judged)
}
