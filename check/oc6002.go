package check

import "fmt"

var oc6002 = Rule{
	ID:       "OC6002",
	Title:    "the clip is never active",
	Severity: Advice,

	Meaning: `No gradient came near the threshold. Either the run is quiet and the clip a net that
was not needed, or the threshold is so high that a harmful spike would pass as well. No
spike has come, so the record cannot tell; hence this is advice.

In a small model that does diverge without a clip, a threshold of 10 times the median
norm kept the loss of all six runs sound, and at 30 times three of six collapsed. A net
that high is none: SGD takes the spike whole, and Adam keeps it in v, which after one
gradient of 50 times the usual size stays above twice its quiet value for about 900
steps.

It is no problem in a short record, in a run that does not spike, or where the model
bounds its gradients anyway (layers of RMSNorm alone prevented that collapse). A clip
with max_norm=inf only reads the norm and is not meant. Rule out a wrong number first:
gradients unscaled twice never reach a threshold (OC1002), nor does a clip that was
handed no tensors (OC1014).`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1000.0)  # the median norm is 1.2
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # about four times the median norm
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Leave it, or take a few times the median of the norms that clip_grad_norm_ returns. If
you want nothing but the norm, torch.nn.utils.get_total_norm says so.`},
	},

	Needs: "norm and threshold of the clips over many applied steps",

	Sources: []string{
		"Pascanu et al. 2013, On the difficulty of training recurrent neural networks: threshold from the average norm, half to ten times of it still converges",
		"jongwook/onsets-and-frames #24: a clip without effect went unnoticed, the norm was mostly below the threshold",
	},

	decide: decideOC6002,
}

func decideOC6002(r *Run) Outcome {
	return r.clipRate(func(active, all int) (string, bool) {
		return fmt.Sprintf("The clip limited none of %d steps: its threshold lies above every norm that came.", all), active == 0
	})
}
