package step

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestLanguage runs the golden sentences of the language and checks that every
// precondition is broken by one of them. Rewrite them with
//
//	go test ./step -run TestLanguage -rewrite
//
// and read the difference: it is a change of what a training step means.
//
// A line of the input is one attempt; one that begins with a space goes on with
// it. Parameters are the letters a, b, c, …
//
//	sentence params=abc     the universe (a)
//
// A word is op[:argument][@parameters][,flag…]; without @ it acts on all.
//
//	zero                    the buffer is emptied
//	backward:S              adds a term of a loss that scaler 0 multiplied by S; S^2: twice; ?: not known
//	  ,by=ID                by another scaler; by=0+1: by both; by=: by none
//	  ,at=PLACE             another line of the script
//	  ,fresh ,full          the buffer was seen empty before it, or not empty
//	unscale:S ,inf ,silent  divides by S; found_inf is false, true, not recorded
//	check ,inf              a verdict
//	clip:U                  U is the unit of the threshold: 1, a scale, or without it not known
//	  ,inert                a threshold of infinity
//	  ,each                 of single examples
//	  ,refilled             a backward ran since the last step
//	step ,skipped ,idle     the optimizer consumes the buffer, is not called, or moves nothing
//	update ,by=ID ,given    the scale moves
//	norm, reduce, add       read; combined over ranks; changed by something else
//	times:S                 multiplied by S
//	blur                    changed, and nobody knows to what
//	copy:FROM@TO            masters are filled with the gradients of FROM
//	gap                     calls are missing from the record
//
// Every word may be ,guess (it is assumed which parameters it acts on), ,claimed
// (nobody looked whether something happened before it) and ,undated (its attempt
// is not known). A sentence in which some loss is multiplied by a scale needs a
// verdict before a step.
//
// What is printed: for each step what it took, part by part, as the words that
// made it, each behind the unit that the part had before it; the preconditions
// that were broken; those that were broken by words that no step took; and what
// is left in the buffers.
func TestLanguage(t *testing.T) {
	broken := map[string]bool{}
	datadriven.Walk(t, "testdata/language", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r, err := readSentence(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			r.run()
			for _, b := range r.breaches() {
				broken[b.Rule+" "+b.Says] = true
			}
			return r.tell()
		})
	})
	for _, transition := range Table {
		for _, need := range transition.Needs {
			if !broken[need.Rule+" "+need.Says] {
				t.Errorf("no sentence breaks what %s needs: %s (%s)", transition.Kind, need.Says, need.Rule)
			}
		}
	}
	if !broken[needBackward.Rule+" "+needBackward.Says] {
		t.Errorf("no sentence breaks what update_scale needs: %s (%s)", needBackward.Says, needBackward.Rule)
	}
}

// sentence is one program over a machine.
type sentence struct {
	params  string
	words   []word
	machine *Machine
}

// word is one operation, or one of the two moves of a machine that are none.
type word struct {
	Operation
	from Set // of a copy
	gap  bool
}

func readSentence(d *datadriven.TestData) (*sentence, error) {
	s := &sentence{params: "a"}
	for _, a := range d.CmdArgs {
		if a.Key != "params" {
			return nil, fmt.Errorf("no argument %q", a.Key)
		}
		s.params = a.Vals[0]
	}
	if d.Cmd != "sentence" {
		return nil, fmt.Errorf("no command %q", d.Cmd)
	}
	scaled, attempt := false, -1
	for line := range strings.SplitSeq(d.Input, "\n") {
		if !strings.HasPrefix(line, " ") {
			attempt++
		}
		for _, text := range strings.Fields(line) {
			w, err := s.parse(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			if w.Event = len(s.words); w.Attempt.Known {
				w.Attempt.Value = attempt
			}
			s.words = append(s.words, w)
			_, isScale := w.Term.IsScale()
			scaled = scaled || isScale
		}
	}
	for i := range s.words {
		s.words[i].Scaled = scaled
	}
	return s, nil
}

// kinds of the words whose name is not the format's.
var wordKinds = map[string]Kind{
	"zero": ZeroGrad, "update": UpdateScale, "add": GradOp, "times": GradOp, "blur": GradOp, "copy": Other, "gap": Other,
}

func (s *sentence) parse(text string) (w word, err error) {
	text, flags, _ := strings.Cut(text, ",")
	text, on, limited := strings.Cut(text, "@")
	op, argument, _ := strings.Cut(text, ":")
	kind, ok := wordKinds[op]
	if !ok {
		if kind = KindOf(op); kind == Other {
			return w, fmt.Errorf("no operation %q", op)
		}
	}
	if !limited {
		on = s.params
	}
	w.Kind, w.Certain, w.gap, w.Muddles = kind, true, op == "gap", op == "blur"
	w.Attempt.Known = true
	if w.On, err = s.set(on); err != nil {
		return w, err
	}
	switch op {
	case "backward":
		w.Term, w.Scalers = unitOf(argument), []string{"0"}
	case "unscale":
		w.Divisor, err = strconv.ParseFloat(argument, 64)
		w.FoundInf = Some(false)
	case "times":
		w.Multiplier, err = strconv.ParseFloat(argument, 64)
	case "check":
		w.FoundInf = Some(false)
	case "clip":
		w.Threshold = unitOf(argument)
	case "update":
		w.Scaler = "0"
	case "copy":
		if w.from, err = s.set(argument); err == nil && len(w.from) == 0 {
			err = fmt.Errorf("copied from where?")
		}
	}
	for f := range strings.SplitSeq(flags, ",") {
		if err == nil && f != "" {
			err = w.flag(f)
		}
	}
	return w, err
}

func (w *word) flag(f string) error {
	if id, ok := strings.CutPrefix(f, "by="); ok {
		w.Scaler, w.Scalers = id, slices.DeleteFunc(strings.Split(id, "+"), func(id string) bool { return id == "" })
		return nil
	}
	if place, ok := strings.CutPrefix(f, "at="); ok {
		w.Site = place
		return nil
	}
	switch f {
	case "fresh", "full":
		w.Fresh = Some(f == "fresh")
	case "inf":
		w.FoundInf = Some(true)
	case "silent":
		w.FoundInf = Maybe[bool]{}
	case "inert":
		w.Inert = true
	case "each":
		w.Partwise = true
	case "refilled":
		w.Refilled = true
	case "skipped":
		w.Outcome = Skipped
	case "idle":
		w.Outcome = Idle
	case "given":
		w.Given = true
	case "guess":
		w.Certain = false
	case "undated":
		w.Attempt = Maybe[int]{}
	case "claimed":
		w.Claimed = true
	default:
		return fmt.Errorf("no flag %q", f)
	}
	return nil
}

// unitOf reads a scale, or a power of one, as its unit; that of 1 is the true gradients'.
func unitOf(argument string) Unit {
	base, exponent, _ := strings.Cut(argument, "^")
	scale, err := strconv.ParseFloat(base, 64)
	if err != nil {
		return UnknownUnit
	}
	k := 1
	if exponent != "" {
		k, _ = strconv.Atoi(exponent)
	}
	return One.Times(scale, k)
}

func (s *sentence) set(letters string) (Set, error) {
	var on Set
	for _, l := range letters {
		i := strings.IndexRune(s.params, l)
		if i < 0 {
			return nil, fmt.Errorf("no parameter %q among %q", l, s.params)
		}
		on = on.Or(SetOf(i))
	}
	return on, nil
}

func (s *sentence) run() {
	s.machine = NewMachine(len(s.params))
	for i := range s.words {
		switch w := &s.words[i]; {
		case w.gap:
			s.machine.Muddle()
		case len(w.from) > 0:
			s.machine.Copy(w.from, w.On)
		default:
			s.machine.Do(&w.Operation)
		}
	}
}

// breaches are all that the machine says was broken, consumed or not.
func (s *sentence) breaches() []Breach {
	all := slices.Clone(s.machine.Loose)
	for i := range s.machine.Consumptions {
		all = append(all, s.consumed(i)...)
	}
	return all
}

// consumed are the preconditions broken behind one step, in the order of the words.
func (s *sentence) consumed(i int) (all []Breach) {
	c := &s.machine.Consumptions[i]
	add := func(b Breach) {
		if !slices.ContainsFunc(all, func(a Breach) bool {
			return a.Requirement == b.Requirement && a.Event == b.Event && slices.Equal(a.On.Members(), b.On.Members())
		}) {
			all = append(all, b)
		}
	}
	for _, rule := range s.rules() {
		c.Breaches(rule, func(_ *Part, b Breach) { add(b) })
	}
	for _, b := range c.Broken { // those of parts that nothing had filled as well
		add(b)
	}
	slices.SortStableFunc(all, func(a, b Breach) int { return a.Event - b.Event })
	return all
}

func (s *sentence) rules() (rules []string) {
	for _, transition := range Table {
		for _, need := range transition.Needs {
			if !slices.Contains(rules, need.Rule) {
				rules = append(rules, need.Rule)
			}
		}
	}
	return rules
}

func (s *sentence) tell() string {
	var b strings.Builder
	for i := range s.machine.Consumptions {
		c := &s.machine.Consumptions[i]
		fmt.Fprintf(&b, "%d %s\n", c.Attempt.Value, [...]string{Applied: "applied", Skipped: "skipped", Idle: "idle"}[c.Outcome])
		for j := range c.Parts {
			b.WriteString("  " + s.part(&c.Parts[j]) + "\n")
		}
		for _, broken := range s.consumed(i) {
			b.WriteString("  " + s.breach(broken) + "\n")
		}
	}
	for _, broken := range s.machine.Loose {
		b.WriteString("loose " + s.breach(broken) + "\n")
	}
	for _, p := range s.machine.parts {
		b.WriteString("left " + s.part(p) + "\n")
	}
	return b.String()
}

func (s *sentence) part(p *Part) string {
	text := s.letters(p.On) + " " + p.State.String()
	for _, w := range p.Words {
		text += fmt.Sprintf(" (%s) %s", w.Unit, s.name(w.Op.Event))
	}
	text += fmt.Sprintf(" (%s)", p.Unit())
	if stale := len(p.Terms) - len(slices.DeleteFunc(slices.Clone(p.Terms), func(t Term) bool { return t.Stale })); stale > 0 {
		text += fmt.Sprintf(" %d stale", stale)
	}
	switch {
	case p.Verdict.NonFinite:
		text += fmt.Sprintf(", not finite by word %d", p.Verdict.Event)
	case p.Verdict.Taken:
		text += ", finite"
	}
	if p.Claimed {
		text += ", claimed"
	}
	return text
}

// name is how a word stands in the input, without what it acts on.
func (s *sentence) name(event int) string {
	switch w := &s.words[event]; {
	case w.Kind == ZeroGrad:
		return "zero"
	case w.Kind == UpdateScale:
		return "update"
	case w.Kind == GradOp && w.Muddles:
		return "blur"
	case w.Kind == GradOp && w.Multiplier != 0:
		return "times"
	case w.Kind == GradOp:
		return "add"
	default:
		return w.Kind.String()
	}
}

func (s *sentence) breach(b Breach) string {
	text := fmt.Sprintf("%s at word %d, %s", b.Rule, b.Event, s.name(b.Event))
	if len(b.On) > 0 {
		text += fmt.Sprintf(" of %s in unit %s", s.letters(b.On), b.Unit)
	}
	return text + ": " + b.Says
}

func (s *sentence) letters(on Set) string {
	text := ""
	for _, i := range on.Members() {
		text += string(s.params[i])
	}
	return text
}
