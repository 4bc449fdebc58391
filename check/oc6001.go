package check

import "fmt"

var oc6001 = Rule{
	ID:       "OC6001",
	Title:    "the clip is active on nearly every step",
	Severity: Advice,

	Meaning: `A clip is meant for the exception. Where it acts on nearly every step, all gradients
have the same length: an outlier batch weighs as much as a good one, and the threshold
has become a factor of the learning rate. In a small model under SGD with momentum,
whose norms had a median of 1.17, a threshold of a tenth of that acted on every step
and gave a mean loss of 2.144. At the median it acted on half of them, 1.681; at five
times the median on 6 %, 1.640.

It is no problem where a normalised gradient is wanted, or at the start, where norms
are high and come down by themselves. Under Adam, which cancels a constant factor, a
clip that never rested cost nothing visible in one small model (0.958 against 1.013). A
global clip keeps the direction whatever its threshold; a clip by value or per tensor
turns the gradient each time, so there it is worth a look.

Rule out a wrong unit first: a threshold on scaled gradients (OC1001) and a sum where a
mean was meant (OC6005) look just like this.`,

	Wrong: `import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # a guess; the median norm is 1.2
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
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
		{"PyTorch", `Record what clip_grad_norm_ returns over some hundred steps after warm-up and take a
few times the median as threshold. Under SGD watch the learning rate when you do: the
steps get longer.`},
	},

	Needs: "norm and threshold of the clips over many applied steps",

	Sources: []string{
		"Pascanu et al. 2013, On the difficulty of training recurrent neural networks: threshold from the average norm, half to ten times of it still converges",
		"Micikevicius et al. 2018, Mixed Precision Training, section 3.2: a threshold is about unscaled gradients",
	},

	decide: decideOC6001,
}

// Rates of clipping are told of runs that are long enough to have one.
const (
	enoughClips = 50
	nearlyAll   = 0.95
)

func decideOC6001(r *Run) Outcome {
	return r.clipRate(func(active, all int) (string, bool) {
		return fmt.Sprintf("The clip limited %d of %d steps: nearly every step has the same norm, and the learning rate alone sets its size.", active, all),
			float64(active) >= nearlyAll*float64(all)
	})
}
