package check

import (
	"fmt"

	"ordercheck/step"
)

var oc6003 = Rule{
	ID:       "OC6003",
	Title:    "a loss scaler although nothing was computed in FP16",
	Severity: Warning,

	Meaning: `The loss is multiplied by S and the gradients are divided by it, and no number in
between needed that. BF16 has the exponents of float32: what vanishes in FP16 below
6e-8 is far above its smallest number, and nothing overflows at 65504.

A power of two only moves the exponent, so the numbers hardly mind. The costs are
others: a pass over all gradients and a wait for the verdict at each step, an error
where BF16 gradients are not supported
("_amp_foreach_non_finite_check_and_unscale_cuda" not implemented for 'BFloat16'), and
every fault that needs a loss scale has become possible. Ask also the other way round:
perhaps the run was meant to be in FP16, and an autocast with another dtype or a
framework's fallback made it something else.

It is no problem as a switch that is off: GradScaler(enabled=False) does nothing, and
one script serves both formats.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Right: `import torch

dtype = torch.bfloat16
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Pass enabled=False: scale, unscale_ and update then do nothing, and step calls the
optimizer. The skip of steps that are not finite goes with it; if you want one in BF16,
test the norm yourself.`},
		{"Lightning", `Use precision="bf16-mixed" and pass no scaler.`},
		{"JAX", `Use jmp.NoOpLossScale(), or leave flax's DynamicScale out.`},
	},

	Needs: "the autocast type and the types of parameters and gradients, beside the scaler's calls",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py: what enabled=False does",
		"ecmwf/WeatherGenerator #874: scaler not disabled for BF16, time lost",
		"pytorch/pytorch #127176, QwenLM/Qwen-VL #372, InternLM/xtuner #960: not implemented for 'BFloat16'",
	},

	decide: decideOC6003,
}

func decideOC6003(r *Run) Outcome {
	if !r.scaled() {
		return r.lacks(noScale)
	}
	p := r.Manifest.Precision.Autocast
	known := p != nil || r.Manifest.PrecisionGiven
	half := p != nil && *p == "float16"
	for _, s := range r.Stories {
		for _, d := range s.Dtypes {
			half = half || d == "float16"
			known = known || d != ""
		}
		half = half || p == nil && s.OnHalfGrid()
	}
	if half {
		return passed()
	}
	if !known {
		return noData("")
	}
	var hits []hit
	for _, s := range r.Stories {
		if i := s.First(step.ScaleLoss); i >= 0 {
			hits = append(hits, hit{story: s, event: i, certainty: Observed, tell: func() (string, []Evidence) {
				what := "float32"
				if p != nil {
					what = *p
				}
				return fmt.Sprintf("The loss is scaled although nothing is computed in FP16 (autocast: %s): the scaler costs time, and a skipped step nothing but data.", what), nil
			}})
		}
	}
	return decided(hits, true)
}
