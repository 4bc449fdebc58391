package check

import (
	"fmt"
	"math"
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
	if r.silent() {
		return noData("")
	}
	return notApplicable(why)
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
