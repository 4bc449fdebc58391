package check

import "fmt"

var oc6005 = Rule{
	ID:       "OC6005",
	Title:    "gradients summed, not averaged, over micro-batches or ranks",
	Severity: Advice,

	Meaning: `The gradient that is stepped is k times the mean, k being the number of micro-batches
or ranks; over 8 micro-batches of a small network the norm was 5.23 where the mean has
0.65. A sum is not wrong as such. But numbers chosen for the mean change their meaning,
and again with each change of k: a clip at 1.0 is one at 1/k, SGD takes k times the
learning rate, a decay added to the gradient is k times too weak. Adam cancels the
factor, not the clip before it.

What shows is a printed loss that grows with k: from 6 to 26 between 8 and 32
accumulation steps in one report. Where the loss is divided for the log alone, not even
that.

It is no problem if it is meant: a sum over tokens that is divided once by all tokens
of the step, or a learning rate and a threshold tuned with this k. Then keep k, or
write beside it what depends on it.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for x, y in micro_batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for micro_batches in loader:
    optimizer.zero_grad()
    for x, y in micro_batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y) / len(micro_batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Divide each loss by the number of micro-batches before scaler.scale, once; with unequal
numbers of tokens divide each sum by the tokens of the whole step.
DistributedDataParallel takes the mean over ranks by itself; dist.all_reduce sums
unless you pass ReduceOp.AVG or divide.`},
		{"Accelerate", `accelerator.backward divides by gradient_accumulation_steps already; do not divide
again.`},
		{"Lightning", `With accumulate_grad_batches the loss is divided for you, with manual optimization not.`},
		{"JAX", `optax.MultiSteps takes the mean unless use_grad_mean=False. lax.psum sums, lax.pmean
does not.`},
	},

	Needs: "the reductions over the ranks with gradients around what follows them, or the declared accumulation with the factor of each backward",

	Sources: []string{
		"karpathy/nanoGPT #168: loss not divided, the clip lower by that factor",
		"agokrani/distillKitPlus #5: loss 6 at 8 accumulation steps, 26 at 32; openai/guided-diffusion #111",
		"huggingface/transformers #37766, PR #35207, PR #35808: a division missing or done twice",
		"Deci-AI/super-gradients #1713: a sum that was intended",
	},

	decide: decideOC6005,
}

func decideOC6005(r *Run) Outcome {
	if len(r.Stories) < 2 && r.accumulates() {
		return noData("whether the loss was divided by the number of micro-batches")
	}
	if len(r.Stories) < 2 {
		return r.lacks("one rank, and one micro-batch a step")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		sums, looked := s.SummedOverRanks()
		judged = judged || looked
		for _, i := range sums {
			e := s.Events[i]
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, certainty: Suspected,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The ranks' gradients were summed and nothing divided the sum by %d: unless the loss was divided before, a threshold and a learning rate meant for a mean are off by that factor.", len(r.Stories)),
						[]Evidence{{"ranks", len(r.Stories)}}
				},
			})
		}
	}
	return decided(hits, judged)
}
