package check

import (
	"fmt"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc2010 = Rule{
	ID:       "OC2010",
	Title:    "finiteness judged before the gradients of the ranks are combined, and never joined",
	Severity: Error,

	Meaning: `When the gradients of the ranks have been combined, an Inf of one is an Inf of all. A
verdict that was taken before is about this rank's share only. The rank that has
overflowed skips; the others saw finite numbers and step on what the all-reduce has
brought them. Even two finite shares can make an Inf: 40000 + 40000 in FP16.

In a measured run of two ranks rank 1 overflowed at step 6. Rank 0 had found_inf = 0,
stepped, and had NaN in all 1476 parameters; rank 1 skipped and went from a scale of
131072 to 65536 alone. At step 7 rank 0's NaN came through the all-reduce. Rank 1 had
judged its own gradients, which were finite, stepped, and had 1476 of them too. From
then on both skipped every step, and the scales fell in step with each other.

Until the first overflow such a loop is right to the bit, for a division by a power of
two and a mean may change places. It is also rare in the plain case, because
DistributedDataParallel combines inside backward. It comes with an all-reduce of one's
own, with sharded optimizers, and with tensor or pipeline parallelism, where each rank
holds other parameters and the verdict is all that they share. There the damage need
not be NaN: ranks that step and skip apart drift apart, or a collective call waits for
a rank that will not come.`,

	Wrong: `import torch
import torch.distributed as dist

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # a verdict on this rank's share
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
import torch.distributed as dist

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    scaler.unscale_(optimizer)  # a verdict on what all ranks will step on
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Combine the gradients of the ranks first and then call scaler.unscale_(optimizer).
Where ranks own different parameters, join the verdicts before the step: FSDP's
torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler does it, in unscale_;
with a fused optimizer call unscale_ yourself, since step alone checks this rank only.
Gradients that are DTensors are joined by the plain GradScaler. By hand:
dist.all_reduce(found_inf, op=dist.ReduceOp.MAX) on every rank.`},
		{"JAX", `Give axis_name to flax's DynamicScale.value_and_grad: it averages and then tests. With
jmp call all_finite on what lax.pmean has returned.`},
	},

	Needs: "the order of reduce, unscale or check, and step on each rank, with each rank's found_inf or gradients",

	Sources: []string{
		"PyTorch 2.15.0, torch/distributed/fsdp/sharded_grad_scaler.py, unscale_: found_inf is summed over the ranks",
		"PyTorch 2.15.0, torch/distributed/tensor/_dispatch.py, found_inf_reduce_handler: found_inf of DTensors is joined by max",
		"NVIDIA/apex #1135: ranks that print different scales",
		"facebookresearch/fairscale #180, deepspeedai/DeepSpeed PR #994, hpcaitech/ColossalAI PR #1175: some ranks skip, the run hangs",
		"ecmwf/WeatherGenerator PR #2718, NVIDIA-NeMo/Automodel PR #2468: the skip was decided by one rank, or by each",
	},

	Explains: []string{"OC2002", "OC2006", "OC3005", "OC4005", "OC4006"},

	decide: decideOC2010,
}

func decideOC2010(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.State != step.Filled {
				continue
			}
			verdict, reduce := -1, -1
			for _, w := range p.Words {
				switch {
				case w.Op.Kind == step.Unscale || w.Op.Kind == step.Check:
					if w.Op.FoundInf.Known && w.Op.Event < c.Event {
						verdict = w.Op.Event
					}
				case w.Op.Kind == step.Reduce && verdict >= 0:
					reduce = w.Op.Event
				}
			}
			judged = judged || verdict >= 0
			if verdict < 0 || reduce < verdict || s.JoinedBetween(verdict, c.Event) {
				continue
			}
			hits = append(hits, hit{
				story: s, event: verdict, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("This rank's verdict was taken before the ranks' gradients were combined%s, and the verdicts were not joined: another rank's overflow reaches gradients that were found finite.", atLine(s, reduce)), nil
				},
			})
		}
	})
	return decided(hits, judged)
}
