package check

import (
	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4003 = Rule{
	ID:       "OC4003",
	Title:    "gradients clipped before those of the ranks are combined",
	Severity: Error,

	Meaning: `The gradient of a data-parallel step is the mean over the ranks, and that mean is what
the threshold is about. Here each rank clipped its own gradient by its own norm, with a
coefficient of its own, and the results were averaged.

A mean of vectors of norm 1 is shorter than 1 unless they agree, so the optimizer gets
less than the threshold allows; how much less depends on the noise, and so on the batch
size per rank. In a measured run of two ranks the local norms were 1.59 and 2.06, that
of the mean 1.62: the right clip at 1.0 gives 1.0, this one gave 0.884. It also clips
where nothing was to be clipped, since noise makes a local norm larger than that of the
mean. And it turns the vector: an outlier on one rank is cut back to the size of the
others. In a second run the cosine with the right gradient fell to 0.86 on such a step.
The same global batch on another number of ranks is now another training.

It is silent because the mean is the same everywhere: parameters agree between the
ranks to the last bit, and the norm at the optimizer never passes the threshold. Only
the logged norms give it away: in the first run each rank had its own on all 24 steps.`,

	Wrong: `import torch
import torch.distributed as dist

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Combine, then unscale, then clip. DistributedDataParallel combines inside backward,
unless forward and backward ran under no_sync(): clip only after one that did not. A
clip in a tensor hook runs before that reduction and is always local. When you reduce
by hand, do it before unscale_ as well, so that all ranks find the same Inf.`},
		{"Accelerate", `Clip under "if accelerator.sync_gradients:". On the other micro-batches the gradients
of the ranks have not been combined yet.`},
		{"DeepSpeed", `Set "gradient_clipping" in the configuration: the engine clips what it has reduced.`},
		{"JAX", `Under pmap and shard_map take lax.pmean of the gradients before the optax chain that
clips. Under jit with sharded arrays the gradients are global already.`},
	},

	Needs: "each rank's reduce and clip calls in their order, with gradients before and after the clip",

	Sources: []string{
		"LeelaChessZero/lczero-training PR #162: each GPU clipped by its own norm, before the gradients were combined",
		"dmlc/gluon-nlp PR #470: gradients have to be summed over the devices before their norm is taken",
		"bluorion-com/ZClip PR #2: clip not synchronised over the ranks",
		"PyTorch 2.15.0, torch/nn/parallel/distributed.py, no_sync: combined in the first forward and backward outside of it",
	},

	decide: decideOC4003,
}

func decideOC4003(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	if !r.has(step.Reduce, func(e *step.Event) bool { return e.What == "gradient" }) {
		return noData("")
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) { judged = true })
	r.eachBreach("OC4003", func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		clip := -1
		for _, w := range p.Words {
			if w.Op.Kind == step.Clip && !w.Op.Inert && w.Op.Event < b.Event {
				clip = w.Op.Event
			}
		}
		now := active(s, p, clip)
		h := hit{story: s, event: clip, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven, idle: !step.Is(now, true)}
		if h.idle {
			h.certainty = Observed
		}
		e := s.Events[clip]
		h.tell = func() (string, []Evidence) {
			return "Each rank clipped its own gradients and then they were combined: the mean of clipped parts is not the clipped mean, and ranks with large gradients lose weight.",
				[]Evidence{{"norm of this rank's gradients", e.Norm.Value}, {"threshold", e.Threshold.Value}}
		}
		hits = append(hits, h)
	})
	return decided(hits, judged)
}
