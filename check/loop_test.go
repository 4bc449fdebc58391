package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"ordercheck/record"
	"ordercheck/record/folder"
)

// loop is a training loop that is run on numbers and recorded: the stories of
// the rules are written in its language, one operation a line, run once for each
// attempt. trainer does the arithmetic.
//
// Calls, which the record shows:
//
//	zero [keep|idle]        zero_grad; keep: zeros instead of None; idle: does nothing
//	scale [L]               the loss, L, is multiplied by the scale, for the next backward
//	backward [W]            of the loss times W; with no scale before it the script multiplies by
//	                        hand; unscaled: by nothing; fine: it does not overflow; w, b: if it
//	                        does, there; spread: and became NaN
//	unscale, update [S]     of the scaler; S: to a scale of the script's own; mistaken: the verdict is false
//	check                   a verdict by the script's own function
//	norm                    is read
//	clip T                  by the norm of all; joined: of all ranks; value: by element; each: by each tensor's norm;
//	                        agc: by T times its parameter's norm
//	step                    through the scaler: unscales unless that was done, and skips;
//	                        direct: by the optimizer alone; fused: divides in its kernel;
//	                        anyway: takes no notice of the verdict; divides: the optimizer divides itself;
//	                        counts, decays: moves its step count or its moments on a skip
//	schedule [F]            the learning rate is multiplied by F (0.9)
//	log norm, clip, loss    the log tells the norm of the gradients as they are, the one that the last
//	                        clip returned, the last scaled loss divided by the scale
//	load [S]                the scaler's state, with the scale S
//	reduce [sum]            the gradients of the ranks become their mean, or their sum
//	join                    the verdicts of the ranks are joined
//	call OP FIELD=VALUE     any other
//	error DURING TEXT       the framework stops the loop
//
// By hand, which only numbers show:
//
//	divide [D]              by the scale, or by D
//	shrink T, cut T         clips by norm (agc: as clip does) and by value
//	hook T                  clips inside the next backward, each tensor by norm; value: by element
//	add C                   C times the parameters is added; scaled: times the scale
//	wipe                    the gradients become None
//	mute                    what is not finite becomes zero
//	copy                    gradients of FP16 parameters into those of their masters
//	decay, forget           the moments decay; the optimizer's state is lost
//	grow, halve             the script moves its scale
//	leave                   the rest of the attempt is left out
//
// Words that most of them know: optN, scalerN (else 0); rankN: only there; all: both optimizers'
// parameters; alone: only those of optN; w, b: that tensor; model: the FP16 parameters of masters;
// twice: the first tensor is handed twice; scaled: T times the scale. A number may be a list, one for each attempt, the
// last for those that follow. FIELD=VALUE puts that into the record in place of
// the truth, null leaves it out.
//
// Before an operation: @A,B only at these attempts; finite? or overflow? only if
// the gradients are, as the script's own eyes see it; noinf? if none is infinite;
// same? or kept? if the scale is what it was when the attempt began, or no less.
type loop struct {
	trainer
	w *record.Writer

	steps     int
	scale     float64         // the first
	look      func(int) bool  // attempts of which snapshots are kept
	without   map[string]bool // ops that are left out of the record
	lost      map[int]bool    // attempts of which the record lost all calls
	hand      bool            // the script has no scaler
	off       bool            // the scaler is switched off
	custom    bool            // an optimizer that nobody knows
	policy    bool            // the record tells the scaler's policy
	resumed   bool            // optimizer 1 continues optimizer 0
	perUpdate bool            // declared of the schedule
	eps       float64         // of the optimizer, as the record tells it
	summaries bool            // in place of snapshots
	stop      bool

	ranks []trainer
	all   []map[string][]float64 // the gradients of every rank in front of an operation
}

// order is one line of a program.
type order struct {
	line        int
	at, when    string // attempts, and what the gradients have to be
	op          string
	numbers     []float64
	opt, scaler string
	rank        string // the only one
	has         map[string]bool
	says        map[string]any // fields of the record
	text        []string       // all words
}

func newLoop() *loop {
	return &loop{
		trainer: trainer{growth: 2, overflow: map[int]bool{}, where: -1, in: []string{"b", "w"}},
		steps:   6, scale: 65536,
		without: map[string]bool{}, lost: map[int]bool{}, look: func(int) bool { return true },
	}
}

func parse(program []string) (orders []order) {
	for i, line := range program {
		o := order{line: i + 1, opt: "0", scaler: "0", has: map[string]bool{}, says: map[string]any{}}
		for _, word := range strings.Fields(line) {
			key, value, says := strings.Cut(word, "=")
			first, _ := strconv.ParseFloat(strings.Split(word, ",")[0], 64)
			switch {
			case strings.HasPrefix(word, "@"):
				o.at = word[1:]
			case strings.HasSuffix(word, "?"):
				o.when = word
			case o.op == "":
				o.op = word
			case o.op == "error", o.op == "call" && !says:
				o.text = append(o.text, word)
			case says:
				o.says[key] = jsonOr(value)
			case strings.HasPrefix(word, "opt"):
				o.opt = word[3:]
			case strings.HasPrefix(word, "rank"):
				o.rank = word[4:]
			case strings.HasPrefix(word, "scaler"):
				o.scaler = word[6:]
			case first != 0:
				for _, v := range strings.Split(word, ",") {
					n, _ := strconv.ParseFloat(v, 64)
					o.numbers = append(o.numbers, n)
				}
			default:
				o.has[word] = true
			}
		}
		if o.op != "" && !strings.HasPrefix(o.op, "#") {
			orders = append(orders, o)
		}
	}
	return orders
}

func jsonOr(word string) (v any) {
	if json.Unmarshal([]byte(word), &v) != nil {
		return word
	}
	return v
}

// number is the one for this attempt, or the default.
func (l *loop) number(o *order, otherwise float64) float64 {
	if n := len(o.numbers); n > 0 {
		return o.numbers[min(l.attempt, n-1)]
	}
	return otherwise
}

// on are the parameters that an operation acts on.
func (l *loop) on(o *order) []string {
	switch {
	case o.has["all"], o.has["model"]:
		return l.model()
	case o.has["twice"]:
		on := l.owned(o.opt)
		return append(slices.Clone(on), on[0])
	case o.has["w"], o.has["b"]:
		return slices.DeleteFunc(l.model(), func(p string) bool { return !o.has[p] })
	}
	return l.owned(o.opt)
}

// run records the program into dir.
func (l *loop) run(dir string, program []string) error {
	var err error
	if l.w, err = record.NewWriter(folder.Dir(dir), l.manifest()); err != nil {
		return err
	}
	orders := parse(program)
	for rank := range l.world() {
		l.begin(rank, l.scale)
		l.ranks = append(l.ranks, l.trainer)
		if !l.hand {
			f := record.Fields{"op": "scaler_create", "scaler": "0", "scale": l.scale, "enabled": !l.off, "step": nil}
			if err := l.event(&order{}, f); err != nil {
				return err
			}
		}
	}
	for attempt := 0; attempt < l.steps && !l.stop; attempt++ {
		if err := l.body(orders, attempt); err != nil {
			return err
		}
	}
	if err := l.w.Close(); err != nil || len(l.lost) == 0 {
		return err
	}
	return l.lose(dir)
}

// body runs an attempt, each operation on all ranks.
func (l *loop) body(orders []order, attempt int) error {
	for r := range l.ranks {
		t := &l.ranks[r]
		t.attempt, t.micro, t.left, t.began = attempt, 0, false, t.scalers["0"].scale
	}
	for i := range orders {
		l.all = nil
		for _, t := range l.ranks {
			l.all = append(l.all, maps.Clone(t.grad))
			for p, g := range t.grad {
				l.all[t.rank][p] = slices.Clone(g)
			}
		}
		for r := range l.ranks {
			l.trainer = l.ranks[r]
			if err := l.turn(&orders[i]); err != nil {
				return fmt.Errorf("line %d: %w", orders[i].line, err)
			}
			l.ranks[r] = l.trainer
		}
	}
	return nil
}

func (l *loop) turn(o *order) error {
	switch {
	case l.left, o.rank != "" && o.rank != strconv.Itoa(l.rank):
		return nil
	case o.at != "" && !contains(o.at, l.attempt), o.when != "" && !l.holds(o):
		return nil
	case o.op == "leave":
		l.left = true
		return nil
	}
	return l.do(o)
}

func (l *loop) holds(o *order) bool {
	switch scale := l.scalers[o.scaler].scale; o.when {
	case "noinf?":
		return !slices.ContainsFunc(l.watched(o), func(p string) bool {
			return slices.ContainsFunc(l.grad[p], func(v float64) bool { return math.IsInf(v, 0) })
		})
	case "same?":
		return scale == l.began
	case "kept?":
		return scale >= l.began
	}
	return l.joined(l.finite(l.watched(o))) == (o.when == "finite?")
}

// watched are the gradients that the script's own check looks at: with masters
// those of the FP16 parameters.
func (l *loop) watched(o *order) []string {
	if l.masters {
		return l.model()
	}
	return l.on(o)
}

func contains(list string, n int) bool {
	return slices.Contains(strings.Split(list, ","), strconv.Itoa(n))
}

// do performs one line of the program, and records it if it is a call.
func (l *loop) do(o *order) error {
	before, on, scaler := l.grads(), l.on(o), l.scalers[o.scaler]
	threshold := l.number(o, math.Inf(1))
	if o.has["scaled"] {
		threshold *= scaler.scale
	}
	var f record.Fields
	looks := true
	switch o.op {
	case "zero":
		for _, p := range on {
			if o.has["keep"] && l.grad[p] != nil {
				l.multiply([]string{p}, 0)
				l.mute([]string{p})
			} else if !o.has["idle"] {
				delete(l.grad, p)
			}
		}
		f = record.Fields{"op": "zero_grad", "optimizer": o.opt, "set_to_none": !o.has["keep"]}
	case "scale":
		loss := scaledLoss{2.5 + float64(l.losses)/8, scaler.scale}
		loss.loss = l.number(o, loss.loss)
		l.losses++
		l.waiting, l.lastLoss = append(l.waiting, loss), loss
		looks = false
		f = record.Fields{"op": "scale_loss", "scaler": o.scaler, "scale": loss.scale, "loss": loss.loss, "scaled": loss.loss * loss.scale}
	case "backward":
		f = l.backward(o, scaler)
	case "unscale":
		scaler.found[o.opt] = !l.finite(on) || o.has["mistaken"]
		l.multiply(on, 1/scaler.scale)
		f = record.Fields{"op": "unscale", "scaler": o.scaler, "optimizer": o.opt, "scale": scaler.scale, "found_inf": scaler.found[o.opt]}
		if l.off {
			delete(f, "found_inf")
		}
	case "check":
		looks = false
		f = record.Fields{"op": "check", "optimizer": o.opt, "found_inf": !l.finite(on), "covers": on}
	case "norm":
		looks = false
		f = record.Fields{"op": "norm", "value": l.norm(on), "norm_type": 2.0, "covers": on}
	case "clip":
		f = l.clip(o, on, threshold)
	case "step":
		return l.step(o, scaler)
	case "update":
		previous := scaler.scale
		switch {
		case len(o.numbers) > 0:
			scaler.scale, scaler.found = l.number(o, 0), map[string]bool{}
		case !l.off:
			l.update(scaler)
		}
		looks = false
		f = record.Fields{"op": "update_scale", "scaler": o.scaler, "scale": scaler.scale, "previous": previous,
			"enabled": !l.off, "given": len(o.numbers) > 0}
	case "reduce":
		l.reduce(on, o.has["sum"])
		f = record.Fields{"op": "reduce", "what": "gradient", "kind": []string{"mean", "sum"}[btoi(o.has["sum"])], "covers": on}
	case "join":
		looks = false
		for _, g := range l.all {
			found := !(&trainer{grad: g}).finite(on)
			scaler.found[o.opt] = scaler.found[o.opt] || found
		}
		f = record.Fields{"op": "reduce", "what": "value", "kind": "max", "value": btoi(scaler.found[o.opt])}
	case "schedule":
		l.lr *= l.number(o, 0.9)
		looks = false
		f = record.Fields{"op": "schedule", "optimizer": o.opt, "lr": l.lr}
	case "log":
		looks = false
		f = l.log(o, l.norm(on), scaler)
	case "load":
		previous := scaler.scale
		scaler.scale = l.number(o, scaler.scale)
		looks = false
		f = record.Fields{"op": "load", "what": "scaler", "scaler": o.scaler, "scale": scaler.scale, "previous": previous}
	case "call":
		looks = false
		f = record.Fields{"op": o.text[0]}
	case "error":
		l.stop, l.left, looks = true, true, false
		f = record.Fields{"op": "error", "during": o.text[0], "scaler": "0", "optimizer": "0", "type": "RuntimeError", "text": strings.Join(o.text[1:], " ")}
	default:
		return l.byHand(o, on, threshold, scaler)
	}
	if f == nil || l.without[o.op] {
		return nil
	}
	if looks && l.look(l.attempt) {
		if err := l.snapshots(f, before, l.grads()); err != nil {
			return err
		}
	}
	return l.event(o, f)
}

func (l *loop) backward(o *order, scaler *lossScaler) record.Fields {
	f := record.Fields{"op": "backward", "micro": l.micro}
	loss := scaledLoss{2.5, scaler.scale}
	if len(l.waiting) > 0 {
		loss, l.waiting = l.waiting[0], l.waiting[1:]
	}
	if o.has["unscaled"] {
		loss.scale = 1
	} else {
		f["factor"] = loss.scale
	}
	f["root"] = loss.loss * loss.scale
	on := l.model()
	if o.has["alone"] {
		on = l.owned(o.opt)
	}
	weight := l.number(o, 1)
	if math.IsInf(loss.loss, 0) || math.IsNaN(loss.loss) {
		weight = math.NaN()
	}
	in := l.in
	if o.has["w"] || o.has["b"] {
		l.in = l.on(o)
	}
	l.fill(on, weight, loss.scale, o.has["fine"])
	l.in = in
	for _, p := range on {
		for i, v := range l.grad[p] {
			if o.has["spread"] {
				l.grad[p][i] = v + 0*v
			}
		}
	}
	l.micro++
	return f
}

func (l *loop) log(o *order, norm float64, scaler *lossScaler) record.Fields {
	key, value := "grad_norm", norm
	switch {
	case o.has["clip"]:
		value = l.clipNorm
	case o.has["loss"]:
		key, value = "loss", l.lastLoss.loss*l.lastLoss.scale/scaler.scale
	}
	return record.Fields{"op": "log", "key": key, "value": value}
}

// reduce makes the gradients the mean of those of all ranks, or the sum.
func (l *loop) reduce(on []string, sum bool) {
	for _, p := range on {
		for i := range l.grad[p] {
			total := 0.0
			for _, g := range l.all {
				total += g[p][i]
			}
			if !sum {
				total /= float64(len(l.all))
			}
			l.grad[p][i] = l.round(p, total)
		}
	}
}

func (l *loop) clip(o *order, on []string, threshold float64) record.Fields {
	norm := l.norm(on)
	if o.has["joined"] {
		sum := 0.0
		for r, g := range l.all {
			for _, p := range l.ranks[r].owned(o.opt) {
				sum += sumSquares(g[p])
			}
		}
		norm = single(math.Sqrt(sum))
	}
	l.clipNorm = norm
	f := record.Fields{"op": "clip", "rule": "global_norm", "threshold": threshold, "norm_type": 2.0,
		"norm": norm, "covers": on, "n_tensors": len(on), "micro": max(l.micro-1, 0)}
	switch {
	case o.has["value"]:
		f["rule"] = "value"
		delete(f, "norm")
		l.cut(on, threshold)
	case o.has["each"]:
		f["rule"] = "per_tensor"
		l.shrinkEach(on, func(string) float64 { return threshold })
	case o.has["agc"]:
		f["rule"] = "agc"
		delete(f, "norm")
		l.shrinkEach(on, l.share(threshold))
	default:
		if o.has["sentinel"] && !l.finite(on) {
			norm, f["norm"] = -1, -1.0
		}
		l.shrink(on, threshold, norm)
	}
	return f
}

// byHand performs what no call shows.
func (l *loop) byHand(o *order, on []string, threshold float64, scaler *lossScaler) error {
	switch o.op {
	case "divide":
		l.multiply(on, 1/l.number(o, scaler.scale))
	case "shrink":
		if o.has["agc"] {
			l.shrinkEach(on, l.share(threshold))
		} else {
			l.shrink(on, threshold, l.norm(on))
		}
	case "cut":
		l.cut(on, threshold)
	case "hook":
		l.hook = func(g []float64) {
			c := single(math.Min(1, threshold/(single(math.Sqrt(sumSquares(g)))+1e-6)))
			for i, v := range g {
				g[i] = single(v * c)
				if o.has["value"] {
					g[i] = math.Max(-threshold, math.Min(threshold, v))
				}
			}
		}
	case "add":
		for _, p := range on {
			for i := range l.grad[p] {
				l.grad[p][i] = l.round(p, l.grad[p][i]+threshold*l.param[p][i])
			}
		}
	case "wipe":
		for _, p := range on {
			delete(l.grad, p)
		}
	case "mute":
		l.mute(on)
	case "copy":
		for _, p := range l.model() {
			l.grad[p+"32"] = slices.Clone(l.grad[p])
		}
	case "decay":
		l.decay(on)
	case "forget":
		for _, p := range on {
			delete(l.state, p)
		}
	case "grow":
		scaler.scale *= 2
	case "halve":
		scaler.scale /= 2
	default:
		return fmt.Errorf("no operation %q", o.op)
	}
	return nil
}

// step consumes the gradients of an optimizer, or skips them.
func (l *loop) step(o *order, scaler *lossScaler) error {
	on := l.owned(o.opt)
	skip, divisor := false, 1.0
	f := record.Fields{"op": "step", "optimizer": o.opt, "via": "optimizer", "called": true, "applied": true, "lr": l.lr}
	switch {
	case o.has["direct"]:
	case l.off:
		f["via"], f["scaler"] = "scaler", o.scaler
	default:
		found, done := scaler.found[o.opt]
		if !done {
			found = !l.finite(on)
			if o.has["fused"] {
				f["grad_scale"], divisor = scaler.scale, scaler.scale
			} else if err := l.implicit(o, scaler, found); err != nil {
				return err
			}
		}
		skip = !l.joined(!found) && !o.has["anyway"]
		scaler.found[o.opt] = !l.joined(!found)
		f["via"], f["scaler"], f["found_inf"] = "scaler", o.scaler, !l.joined(!found)
		f["fused"], f["called"], f["applied"] = o.has["fused"], !skip || o.has["fused"], !skip
	}
	before, stateBefore := l.grads(), l.states(on)
	switch {
	case skip:
		if o.has["counts"] {
			l.count(on)
		}
		if o.has["decays"] {
			l.decay(on)
		}
	case o.has["divides"]:
		l.consume(on, scaler.scale)
	default:
		l.multiply(on, 1/divisor)
		l.consume(on, 1)
	}
	if l.without["step"] {
		return nil
	}
	if l.look(l.attempt) {
		if err := l.snapshots(f, append(before, stateBefore...), append(l.grads(), l.states(on)...)); err != nil {
			return err
		}
	}
	return l.event(o, f)
}

// implicit is the unscale that a scaler makes inside its own step.
func (l *loop) implicit(o *order, scaler *lossScaler, found bool) error {
	before := l.grads()
	l.multiply(l.owned(o.opt), 1/scaler.scale)
	f := record.Fields{"op": "unscale", "scaler": o.scaler, "optimizer": o.opt, "scale": scaler.scale, "found_inf": found, "implicit": true}
	if l.without["unscale"] {
		return nil
	}
	if l.look(l.attempt) {
		if err := l.snapshots(f, before, l.grads()); err != nil {
			return err
		}
	}
	return l.event(&order{line: o.line}, f)
}
