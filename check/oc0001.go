package check

import "ordercheck/evidence"

var oc0001 = Rule{
	ID:       "OC0001",
	Title:    "the recording contradicts itself: its calls say one thing, its numbers another",
	Severity: Warning,

	Meaning: `An event says what a call was meant to do, the snapshots around it say what it did.
Here the two differ by more than rounding can explain: an unscale by 65536 whose
gradients shrank by 131072, a clip that reports a norm its own gradients do not have,
a step that was applied and left every parameter as it was.

Most often the recording is at fault and not the training: a value was read at another
moment than the one it describes, snapshots of two runs or two copies of a model were
mixed, or a method was replaced by one that keeps the name and drops the work.
get_scale() after update() is the classic: on nearly every step it is still the right
number, on the steps where the scale moved it is wrong by a factor of two.

The numbers win. Where both speak, the other rules are decided on what happened to the
gradients, and what rests on the contradicted call alone is not believed. So this is a
warning: until it is gone, some faults may stay unseen, and silence about the steps
named here proves little.`,

	Wrong: `import json, torch
# summary(model): {"grad/NAME": {"n", "nonfinite", "max", "sumsq", "sample"}} as of now
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
events = open("run/events.jsonl", "w")
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    before = summary(model); scaler.unscale_(optimizer); after = summary(model)
    scaler.step(optimizer)
    scaler.update()
    event = {"seq": step, "rank": 0, "step": step, "op": "unscale", "scaler": "0", "optimizer": "0"}
    event |= {"before_summary": before, "after_summary": after}
    event["scale"] = scaler.get_scale()  # the next step's
    print(json.dumps(event), file=events)`,

	Right: `import json, torch
# summary(model): {"grad/NAME": {"n", "nonfinite", "max", "sumsq", "sample"}} as of now
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
events = open("run/events.jsonl", "w")
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    before = summary(model); scaler.unscale_(optimizer); after = summary(model)
    event = {"seq": step, "rank": 0, "step": step, "op": "unscale", "scaler": "0", "optimizer": "0"}
    event |= {"before_summary": before, "after_summary": after}
    event["scale"] = scaler.get_scale()  # the one it divided by
    print(json.dumps(event), file=events)
    scaler.step(optimizer)
    scaler.update()`,

	Mend: []Remedy{
		{"PyTorch", `Write each event at the moment of its call, with the values that the call used: the
scale before update(), the gradients of the parameters that the optimizer owns
(optimizer.param_groups), the norm that the clip returned. If the recording is right
and the call is the liar, look for a subclass or a patch that overrides it and does
not call super().`},
	},

	Needs: "a call and the numbers around it: gradients before and after an unscale or a clip, parameters before and after a step",

	Sources: []string{
		"PyTorch 2.15.0, torch/amp/grad_scaler.py: update() changes what get_scale() returns; a value read after it belongs to the next step",
		"facebookresearch/fairchem PR #617: get_scale() read after the update, logged loss off by a factor of 2",
	},

	Tensors: true,

	decide: decideOC0001,
}

func decideOC0001(r *Run) Outcome {
	if r.silent() {
		return noData(needCalls)
	}
	var hits []hit
	looked := false
	for _, s := range r.Stories {
		for _, c := range s.Contradictions() {
			hits = append(hits, hit{
				story: s, event: c.Event, attempt: s.Events[c.Event].Attempt, optimizer: s.Events[c.Event].Optimizer, certainty: Proven,
				tell: func() (string, []Evidence) {
					return c.Says, []Evidence{{"the call says", c.Call}, {"the numbers say", c.Numbers}}
				},
			})
		}
		looked = looked || len(s.Moves) > 0
	}
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case looked:
		return passed()
	}
	return noData("")
}

// contradicted are the calls that the numbers beside them contradict.
func contradicted(s *evidence.Story) map[int]bool {
	out := map[int]bool{}
	for _, c := range s.Contradictions() {
		out[c.Event] = true
	}
	return out
}
