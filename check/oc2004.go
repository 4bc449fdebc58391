package check

import (
	"fmt"

	"ordercheck/step"
)

var oc2004 = Rule{
	ID:       "OC2004",
	Title:    "a skipped step moved a schedule or a running average of the parameters",
	Severity: Warning,

	Meaning: `A step that overflowed has applied nothing, so nothing that counts updates may count
it. Here the learning rate went on along its schedule, or an average of the parameters
(EMA) took the unchanged ones in once more.

For a schedule this is seldom serious: a skip every few hundred steps shifts it by as
much, and in a measured series with 12 skips no damage could be seen. What counts is
the start. In a measured run whose scale began at 2^32 the first 15 attempts were
skips; a warm-up over 50 steps had gone from 6.0e-5 to 9.4e-4 by then, and the first
step ever applied was 16 times as long as planned. So this is a warning, and an error
only if more than a tenth of the schedule's calls fell on skips while the rate was
still rising, or if the schedule was declared to count updates. An average is an error
at once: with a decay of 0.999 a run of 100 skips moves it 9.5 % of the way to the raw
parameters, with no training done.

PyTorch warns of it ("Detected call of lr_scheduler.step() before optimizer.step()")
if the first step of all is skipped, later no more, and with a fused optimizer never:
its step is called on overflow too, and the skip happens inside. For the same reason
wrappers that watch whether step was called take a fused skip for a step.`,

	Wrong: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.02, total_iters=50)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()  # whether or not there was a step`,

	Right: `import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.02, total_iters=50)
scaler = torch.amp.GradScaler("cuda")

for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:  # a scale that fell was a skip
        scheduler.step()`,

	Mend: []Remedy{
		{"PyTorch", `Compare the scale before and after update(): it falls when a step was skipped, and
only then. Put the average under the same condition. get_scale waits for the device;
if that is too slow, count the optimizer's calls with register_step_post_hook, unless
it is fused. Where two optimizers share a scaler, the scale says only that one of them
skipped.`},
		{"Accelerate", `The scheduler that accelerator.prepare returns stands still on a skip, except with a
fused optimizer (1.15.0), and the Hugging Face Trainer's default is a fused AdamW
(5.24.0): compare the scale yourself, or choose optim="adamw_torch".`},
		{"Lightning", `With automatic optimization a skip moves the schedulers by design, and the
WeightAveraging callback as well. With manual optimization the call is yours and can
depend on the scale.`},
		{"DeepSpeed", `Hand the scheduler to deepspeed.initialize: the engine does not step it on overflow.
For what you step yourself ask engine.was_step_applied().`},
		{"Keras", `Keras 3 leaves the iterations of the inner optimizer alone on a skip, and with them
its schedule; tf_keras moves them by design.`},
		{"JAX", `A schedule inside the optax chain counts in opt_state and stands still if opt_state is
selected back. One that is read from flax's state.step moves on.`},
	},

	Needs: "the schedule's learning rate, or the average, before and after a skipped step",

	Sources: []string{
		"PyTorch 2.15.0, torch/optim/lr_scheduler.py, step: the warning is given at the first call only",
		"pytorch/pytorch #44511, #55585, #67590: scaler.step does not tell whether it skipped",
		"huggingface/accelerate #4242: fused AdamW, overflow, the schedule advances",
		"Lightning-AI/pytorch-lightning #18828, #21339; NVIDIA-NeMo/Speech PR #3293; WatChMaL/WatChMaL PR #106",
		"DeepSpeed 0.19.8, deepspeed/runtime/engine.py, _take_model_step: lr_scheduler.step only without overflow",
	},

	decide: decideOC2004,
}

func decideOC2004(r *Run) Outcome {
	if !r.has(step.Schedule, nil) && !r.has(step.EMA, nil) {
		return r.lacks("no schedule and no average is recorded")
	}
	var hits []hit
	judged := false
	for _, s := range r.Stories {
		skipped := s.SkippedAttempts()
		judged = judged || len(skipped) > 0
		calls, idle, rising := 0, 0, s.RatesRise()
		for i, e := range s.Events {
			if e.Kind != step.Schedule && e.Kind != step.EMA || !e.Attempt.Known {
				continue
			}
			calls++
			if !skipped[e.Attempt.Value] {
				continue
			}
			idle++
			what := "the learning-rate schedule"
			if e.Kind == step.EMA {
				what = "an average of the parameters"
			}
			hits = append(hits, hit{
				story: s, event: i, attempt: e.Attempt, optimizer: e.Optimizer, certainty: Observed,
				grave: e.Kind == step.EMA || r.Manifest.Declared.Schedule == "per_update",
				tell: func() (string, []Evidence) {
					return fmt.Sprintf("The step was skipped, and %s moved all the same.", what),
						[]Evidence{{"calls on skipped steps", idle}, {"calls", calls}}
				},
			})
		}
		if rising && idle*10 > calls {
			for i := range hits {
				hits[i].grave = true
			}
		}
	}
	if !judged {
		return r.lacks("no step was skipped")
	}
	return decided(hits, judged)
}
