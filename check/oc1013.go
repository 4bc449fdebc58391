package check

import (
	"fmt"

	"ordercheck/fp16"
)

var oc1013 = Rule{
	ID:       "OC1013",
	Title:    "a constant of the optimizer vanishes in its number format",
	Severity: Warning,

	Meaning: `The constants of an optimizer are small, and number formats end somewhere. In FP16
2^-25 = 3.0e-8 and less is 0, and so is Adam's eps of 1e-8. The format rounds v away
as well: (1 - beta2) g^2 is 0 for every gradient below 0.0055, if beta2 is 0.999. A
gradient of 0 then gives 0/0 = NaN, a small one Inf. In two small FP16 models 641 of
1476 and 1758 of 3041 parameters were not finite after the first step. An eps that
just survives is no cure: with 1e-7 an element whose gradient was 0.001 moved by 8.4,
where lr = 0.001 was meant.

Other constants go without a sound. Decay multiplies a weight by 1 - lr * wd, and if
that is nearer to 1 than 2^-12 = 2.4e-4 in FP16, or 2^-9 = 2.0e-3 in BF16, the product
rounds back to the weight. With lr = 3e-4 and wd = 0.1 not one of 1000 weights changed
in either format. In BF16 beta2 = 0.999 is such a constant: v rises and cannot fall.
After 100 gradients of 1 and 3000 of 0.01 it stood where the first hundred had left
it, 20 times too high, and the steps were 4.5 times too short.

The first kind ends the run at once and is soon found. The second looks like a model
that needs another learning rate, or a decay that does not help. It is a warning,
because whether a constant matters is for the values to say.`,

	Wrong: `import torch

model.half()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)  # eps = 1e-8 is 0 in FP16

for x, y in loader:
    optimizer.zero_grad()
    loss = loss_fn(model(x.half()).float(), y)
    loss.backward()
    optimizer.step()`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)  # m, v, eps in float32
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `m and v take the type of the parameters, and eps is added in it: step float32
parameters, under autocast or as masters of an FP16 model. If they have to stay in
half precision, choose constants that exist there: eps=1e-4 in FP16, beta2 of 0.99 or
less in BF16. A fused AdamW computes in float32 and rounds what it stores: that saves
eps, but small v are still 0 when the next step reads them.`},
		{"Lightning", `"16-true" and "bf16-true" turn the parameters themselves into half precision; the
"-mixed" settings leave them in float32.`},
		{"Keras", `The policy "mixed_float16" keeps variables in float32, "float16" does not.`},
		{"JAX", `optax keeps v in the type of the parameters (mu_dtype is for m only) and eps is taken
in it. Keep params in float32 and cast for the computation, as with
jmp.get_policy("params=float32,compute=float16,output=float32").`},
	},

	Needs: "the number format of the parameters or of the optimizer's state, and the optimizer's settings",

	Sources: []string{
		"PyTorch 2.15.0, torch/optim/adam.py, _single_tensor_adam: sqrt(v) and eps are added, and the decay multiplied, in the type of the tensors",
		"google-deepmind/optax #1754, #1789: 0/0 on FP16 steps with a zero gradient; an eps of 1e-6 is a subnormal and survives",
		"pytorch/pytorch #147437: pure FP16 parameters NaN after the first step",
		"afiaka87/glide-finetune #5, chainer/chainer PR #3753",
	},

	decide: decideOC1013,
}

func decideOC1013(r *Run) Outcome {
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		for _, id := range s.Universe.Optimizers() {
			o := r.Manifest.Optimizers[id]
			on, _ := s.Universe.Owned(id)
			if on.Empty() || len(s.Events) == 0 {
				continue
			}
			half := true
			for _, name := range s.Universe.Members(on) {
				half = half && s.Dtypes[name] == "float16"
			}
			judged = judged || s.Dtypes[s.Universe.Members(on)[0]] != ""
			eps := o.Settings.Eps
			if !half || eps == nil || *eps == 0 || fp16.HalfFromFloat64(float64(*eps)) != 0 {
				continue
			}
			first := s.FirstStep(id)
			if first < 0 {
				continue
			}
			hits = append(hits, hit{
				story: s, event: first, attempt: s.Events[first].Attempt, optimizer: id, certainty: Observed,
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The optimizer's parameters and state are FP16, where eps = %s is zero: a second moment of zero divides by zero.", num(float64(*eps))),
						[]Evidence{{"eps", float64(*eps)}, {"smallest FP16 number", fp16.SmallestNonzeroHalf}}
				},
			})
		}
	}
	return decided(hits, judged)
}
