package check

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ordercheck/evidence"
	"ordercheck/record"
	"ordercheck/step"
)

// What the rules ask of the stories, each in one place.

// scaled reports whether some loss of the run is multiplied by a scale.
func (r *Run) scaled() bool {
	for _, s := range r.Stories {
		if s.ScaledLoss {
			return true
		}
	}
	return false
}

// noScale is why rules about the loss scale do not apply.
const noScale = "no loss is multiplied by a scale"

// scaledByHand reports whether the script multiplies its losses itself.
func (r *Run) scaledByHand() bool {
	for _, s := range r.Stories {
		if s.HandScale {
			return true
		}
	}
	return false
}

// needCalls is what rules about the order of calls lack where only tensors are left.
const needCalls = "the calls of the loop: a recording"

// silent reports whether no call was recorded at all.
func (r *Run) silent() bool { return r.Kind == record.Tensors }

// lacks is the outcome of a rule that finds nothing to judge: not applicable if
// the calls show that there is nothing, no data if there are no calls.
func (r *Run) lacks(why string) Outcome {
	switch {
	case r.silent():
		return noData("")
	case why == noScale && r.maybeScaled():
		return noData("whether the constant that multiplies the loss is a loss scale: gradients before and after it is divided out")
	}
	return notApplicable(why)
}

// maybeScaled reports whether the script multiplies its losses by what may be a scale.
func (r *Run) maybeScaled() bool {
	return slices.ContainsFunc(r.Stories, func(s *evidence.Story) bool { return s.MaybeHand })
}

// guarded reports whether gradients that are not finite went by unstepped.
func (r *Run) guarded() bool {
	for _, s := range r.Stories {
		for _, c := range s.Machine.Consumptions {
			if on, _ := s.Universe.Owned(c.Optimizer); s.Guarded(c.Optimizer, on) {
				return true
			}
		}
	}
	return false
}

// knownOptimizer reports whether an optimizer is one of torch.optim, none of
// which divides gradients by a scale unless it is handed one.
func knownOptimizer(name string) bool {
	switch name {
	case "", "SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "Muon", "Adafactor", "LBFGS", "SparseAdam":
		return true
	}
	return false
}

// decided is the outcome of a rule with these hits; judged says that there was
// something to decide it by.
func decided(hits []hit, judged bool) Outcome {
	switch {
	case len(hits) > 0:
		return faults(told(hits))
	case judged:
		return passed()
	}
	return noData("")
}

// breachRule decides a rule that is one precondition of an applied step.
func (r *Run) breachRule(rule string, tell func(*evidence.Story, *step.Consumption, *step.Part, step.Breach) (string, []Evidence)) Outcome {
	if !r.scaled() && strings.HasPrefix(rule, "OC1") && rule != "OC1010" {
		return r.lacks(noScale)
	}
	var hits []hit
	judged := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			p := &c.Parts[i]
			judged = judged || c.Outcome == step.Applied && p.State == step.Filled && p.Unit().Known() && !p.Claimed
		}
	})
	r.eachBreach(rule, func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach) {
		if r.silent() {
			return // the scales of a run without calls are read off its own divisions
		}
		h := hit{story: s, event: b.Event, attempt: c.Attempt, optimizer: c.Optimizer, certainty: Proven}
		if p.Claimed {
			h.certainty = Observed
		}
		h.tell = func() (string, []Evidence) { return tell(s, c, p, b) }
		hits = append(hits, h)
	})
	return decided(hits, judged)
}

// accumulates reports whether some step took the sum of several backwards.
func (r *Run) accumulates() bool {
	found := false
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		for i := range c.Parts {
			found = found || c.Parts[i].State == step.Filled && len(c.Parts[i].Terms) > 1
		}
	})
	return found
}

// clipRate counts, for each optimizer, how many of its applied steps a clip limited.
func (r *Run) clipRate(says func(active, all int) (string, bool)) Outcome {
	if !r.has(step.Clip, clips) {
		return r.lacks("nothing is clipped")
	}
	type count struct {
		story       *evidence.Story
		event       int
		active, all int
	}
	counts := map[string]*count{}
	var order []string
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied || s.Rank != r.Stories[0].Rank {
			return
		}
		limited, known, at := false, false, -1
		for i := range c.Parts {
			for _, w := range c.Parts[i].Words {
				if w.Op.Kind != step.Clip || w.Op.Inert {
					continue
				}
				now := active(s, &c.Parts[i], w.Op.Event)
				known, limited, at = known || now.Known, limited || step.Is(now, true), w.Op.Event
			}
		}
		if !known {
			return
		}
		if counts[c.Optimizer] == nil {
			counts[c.Optimizer] = &count{story: s, event: at}
			order = append(order, c.Optimizer)
		}
		n := counts[c.Optimizer]
		n.all++
		if limited {
			n.active++
		}
	})
	var hits []hit
	judged := false
	for _, id := range order {
		n := counts[id]
		if n.all < enoughClips {
			continue
		}
		judged = true
		if m, yes := says(n.active, n.all); yes {
			hits = append(hits, hit{story: n.story, event: n.event, optimizer: id, certainty: Observed, tell: func() (string, []Evidence) {
				return m, []Evidence{{"steps that were limited", n.active}, {"steps", n.all}}
			}})
		}
	}
	return decided(hits, judged)
}

// eachStep visits what every step took. Parts that nothing had filled are left
// out: there is nothing to say about them.
func (r *Run) eachStep(visit func(s *evidence.Story, c *step.Consumption)) {
	for _, s := range r.Stories {
		for i := range s.Machine.Consumptions {
			visit(s, &s.Machine.Consumptions[i])
		}
	}
}

// eachBreach visits every failed precondition of a rule behind a step that was
// applied, with the part that it concerns.
func (r *Run) eachBreach(rule string, visit func(s *evidence.Story, c *step.Consumption, p *step.Part, b step.Breach)) {
	r.eachStep(func(s *evidence.Story, c *step.Consumption) {
		if c.Outcome != step.Applied {
			return
		}
		c.Breaches(rule, func(p *step.Part, b step.Breach) { visit(s, c, p, b) })
	})
}

// has reports whether some step or waiting sentence of the run holds an operation.
func (r *Run) has(kind step.Kind, want func(e *step.Event) bool) bool {
	for _, s := range r.Stories {
		for i := range s.Events {
			if e := s.Events[i]; e.Kind == kind && (want == nil || want(e)) {
				return true
			}
		}
	}
	return false
}

// clips reports whether an event is a clip that can do something.
func clips(e *step.Event) bool {
	return !(e.Threshold.Known && e.Threshold.Value > 1e300)
}

// active says whether a clip limited something: the numbers before and after
// say it, else its norm against its threshold.
func active(s *evidence.Story, p *step.Part, event int) step.Maybe[bool] {
	if m := s.Seen(event, opOn(p, event), p.On); len(m) > 0 {
		return step.Some(!m.Still())
	}
	e := s.Events[event]
	if e.Inferred {
		return step.Some(true)
	}
	if e.Norm.Known && e.Threshold.Known && e.Rule != "value" {
		return step.Some(!(e.Norm.Value <= e.Threshold.Value))
	}
	return step.Maybe[bool]{}
}

// opOn is what the operation of an event in a part's sentence acted on.
func opOn(p *step.Part, event int) step.Set {
	for _, w := range p.Words {
		if w.Op.Event == event {
			return w.Op.On
		}
	}
	return p.On
}

// num prints a number for a message: whole ones whole, others with six digits.
func num(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprintf("%.6g", v)
}

// tensors names parameters for a message, the first few of many.
func tensors(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
