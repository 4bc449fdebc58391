package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4008 = Rule{
	ID:       "OC4008",
	Title:    "gradients of the ranks combined at the wrong micro-batch",
	Severity: Error,

	Meaning: `Under accumulation the gradients of the ranks are combined once, in the backward of the
last micro-batch. Combined at the first instead, only that one is shared and each rank
steps on a rest of its own. Summed at each micro-batch, what has been summed is summed
again: with two ranks and four micro-batches the first counts 8 times and the last
once. A mean at each micro-batch costs time but is right, since the mean of equal
numbers is that number.

In a measured run of two ranks and four micro-batches, combined at the first, the
gradients that the ranks stepped on had a cosine of 0.54 to 0.91 with each other. After
24 steps their parameters were 9 % of their norm apart: two models that began alike.
With a sum at each micro-batch the ranks did agree, on a norm of 5.1 where 0.74 was
right; a clip hides that.

It is silent because each rank does train. The loss falls everywhere, rank 0 writes log
and checkpoint, and nothing compares parameters once they have been handed out. After a
resume from the copy of rank 0 the work of the others is gone.`,

	Wrong: `import torch
from contextlib import nullcontext

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches):
        with nullcontext() if i == 0 else model.no_sync():
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_fn(model(x), y) / len(micro_batches)
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
from contextlib import nullcontext

model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches):
        with nullcontext() if i == len(micro_batches) - 1 else model.no_sync():
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_fn(model(x), y) / len(micro_batches)
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Run all micro-batches but the last inside model.no_sync(), forward included, because
the flag is read there; for the same reason set require_backward_grad_sync before the
forward. Derive the flag and the step from one condition, a last, shorter window
included. With fully_shard the switch is model.set_requires_gradient_sync. By hand:
reduce once, after the last backward.`},
		{"Accelerate", `Put the whole iteration under "with accelerator.accumulate(model):".`},
		{"Lightning", `Trainer(accumulate_grad_batches=k) does it. In Fabric put forward and backward under
fabric.no_backward_sync(model, enabled=...), true on all but the last micro-batch.`},
		{"DeepSpeed", `Set "gradient_accumulation_steps" and call engine.backward and engine.step on each
micro-batch: the engine counts.`},
		{"JAX", `Accumulate locally and take lax.pmean of the sum, once.`},
	},

	Needs: "the reduce and backward calls of each rank with their micro-batches",

	Sources: []string{
		"PyTorch 2.15.0, torch/nn/parallel/distributed.py, no_sync: the forward has to be inside as well",
		"modelscope/FunASR PR #3472: the first micro-batch combined, the last not; 4.0 and 7.0 instead of 5.5",
		"karpathy/build-nanogpt PR #30: require_backward_grad_sync set too late",
		"deepspeedai/DeepSpeed PR #7985, InfiniTensor/InfiniTrain PR #213: later micro-batches missing from the reduction",
		"hpcaitech/ColossalAI #247: reduced several times; speechbrain/speechbrain PR #2010: no_sync ended at the first module that is not DDP",
	},

	decide: decideOC4008,
}

func decideOC4008(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Reduce, func(e *step.Event) bool { return e.What == "gradient" }) {
		return noData("")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied || s.Sharded() {
			return
		}
		never, twice, known := s.Combined(c)
		judged = judged || known
		if !known || !never && !twice {
			return
		}
		hits = append(hits, hit{
			story: s, event: c.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Observed,
			tell: func() (string, []Evidence) {
				if never {
					return "The last micro-batch's gradients were never combined over the ranks: each rank stepped on its own.", nil
				}
				return "Gradients that had been summed over the ranks were summed again together with the next micro-batch: the first ones count once for each rank.", nil
			},
		})
	})
	return decided(hits, judged)
}
