package check

import (
	"fmt"
	"math"

	"ordercheck/evidence"
	"ordercheck/step"
)

var oc4004 = Rule{
	ID:       "OC4004",
	Title:    "the norm used is not the norm of the gradient that is stepped",
	Severity: Error,

	Meaning: `A clip by global norm needs one number, the norm of the whole gradient. Where the ranks
own different parts of it (FSDP, ZeRO, tensor or expert parallel), no rank can compute
that alone: each sums the squares of its own part, the sums are added over the ranks,
each parameter once, and then comes the root.

Each shortcut is off by its own factor. The norm of one shard is about 1/sqrt(W) of the
whole: on 8 ranks a threshold of 1.0 acts like 2.8, and each rank has its own
coefficient, which turns the gradient. Replicas that are counted again make it too
large: on two ranks a norm of 0.8 was taken for 1.131, and a gradient that needed no
clip was cut to 0.707. Averaged norms: sqrt(20) and sqrt(100) gave 7.236, the right
value is 10.954. And a rank that does not call the clip goes on with unclipped
gradients: in the training of BLOOM-176B clipping ran on one tensor-parallel rank only,
and copies of the same LayerNorm weights drifted apart, unnoticed for ten days.

The number is always plausible, its factor hardly moves, and Adam cancels a constant
one; the loss of BLOOM looked normal. Where ranks use shards, each may print another
grad_norm, and that is the one sign you get; where replicas are counted again there is
none: the ranks agree with each other.`,

	Wrong: `import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = ShardedGradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of this rank's shards
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = ShardedGradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    model.clip_grad_norm_(1.0)  # on every rank: it communicates
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `FullyShardedDataParallel: call clip_grad_norm_ of the root module, on all ranks. With
fully_shard the gradients are DTensors and torch.nn.utils.clip_grad_norm_ is right; log
what it returns as norm.full_tensor(). By hand: sum the squares of what this rank owns
(a replicated parameter on one rank only), all_reduce the sum, take the root, and hand
it to torch.nn.utils.clip_grads_with_norm_. A maximum norm is reduced by MAX.`},
		{"Accelerate", `Hand accelerator.clip_grad_norm_ exactly model.parameters() of the prepared model: only
then does it call FSDP's own method.`},
		{"Lightning", `In Fabric call fabric.clip_gradients(model, optimizer, max_norm=1.0), on all ranks.`},
		{"DeepSpeed", `Set "gradient_clipping" and let the engine compute the norm over its partitions.`},
		{"JAX", `Under jit optax.clip_by_global_norm sees whole arrays, however they are sharded. Under
shard_map and pmap it sees one device's part: sum the squares with lax.psum first.`},
	},

	Needs: "each rank's clip with its norm and the gradients before it, and which parameters each rank owns",

	Sources: []string{
		"PyTorch 2.15.0, torch/distributed/fsdp/fully_sharded_data_parallel.py, clip_grad_norm_: instead of torch.nn.utils where gradients are sharded, and on all ranks",
		"sgl-project/SpecForge PR #663, baidu-baige/LoongForge PR #152, pytorch/pytorch #72548: norm of the rank's own shard",
		"modelscope/twinkle PR #290: 1.131371 for 0.8, clipped to 0.707106; pytorch/pytorch PR #88955: counted once per rank",
		"deepspeedai/DeepSpeed #8475: 7.236068 for 10.954452; laekov/fastmoe PR #65: summed without squaring",
		"deepspeedai/DeepSpeed PR #1801: BLOOM-176B, clip on one tensor-parallel rank, unnoticed for 10 days by one account and 15 by another",
		"pytorch/torchtitan #766: another grad_norm on each rank",
	},

	decide: decideOC4004,
}

func decideOC4004(r *Run) Outcome {
	if len(r.Stories) < 2 {
		return r.lacks("one rank")
	}
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	norms := evidence.JoinedNorms(r.Stories)
	var hits []hit
	for _, n := range norms {
		if math.Abs(n.Used/n.True-1) < 1e-3 {
			continue
		}
		hits = append(hits, hit{
			story: n.Story, event: n.Event, attempt: n.Story.Events[n.Event].Attempt, optimizer: n.Optimizer, certainty: Proven,
			tell: func() (string, []Evidence) {
				why := "is not that of the gradients that are stepped"
				switch {
				case n.Sharded && math.Abs(n.Used/n.Local-1) < 1e-3:
					why = "is that of this rank's part alone"
				case !n.Sharded && math.Abs(n.Used/n.True-math.Sqrt(float64(len(r.Stories)))) < 1e-3:
					why = "counts the same gradients once for every rank"
				}
				return fmt.Sprintf("The norm that the clip used, %s, %s: theirs is %s, a clip that is active is off by the factor %s.", num(n.Used), why, num(n.True), num(n.Used/n.True)),
					[]Evidence{{"norm that the clip used", n.Used}, {"norm over the whole cover", n.True}, {"norm of this rank's gradients", n.Local}, {"ratio", n.Used / n.True}}
			},
		})
	}
	return decided(hits, len(norms) > 0)
}
