package check

// A Rule is one sentence of the type system that a training step can break,
// as data: `ordercheck explain`, the rule pages and SARIF's rule section are
// made from it. The function that decides it stands in the same file.
type Rule struct {
	ID       string
	Title    string   // lower case, no period: what is wrong, in a line
	Severity Severity // of a proven or observed finding

	Meaning string   // what goes wrong and why it is silent; plain text, paragraphs parted by empty lines
	Wrong   string   // a loop that breaks the rule (PyTorch unless it says otherwise)
	Right   string   // the same loop, mended
	Mend    []Remedy // PyTorch first; other frameworks only where the call really differs
	Needs   string   // what a recording must hold for the rule to be decided
	Sources []string // framework file and version, paper and section, or public report

	// Explains names the rules whose findings this rule's finding accounts
	// for: they follow from the same cause and are printed as one line.
	Explains []string

	// Tensors: the rule can be decided from tensor files alone, where no call is recorded.
	Tensors bool

	decide func(*Run) Outcome
}

// Remedy says how to mend a loop in one framework.
type Remedy struct {
	Framework string // "PyTorch", "Accelerate", "Lightning", "DeepSpeed", "Keras", "JAX"
	Text      string
}

// Severity of a finding.
type Severity string

const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Advice  Severity = "note"
)

// Certainty says what stands behind a finding.
type Certainty string

const (
	Proven    Certainty = "proven"    // the numbers show that the step was changed by it
	Observed  Certainty = "observed"  // the sequence of calls is wrong
	Suspected Certainty = "suspected" // a pattern hints at it; never of severity error
)

// Status of a rule over a run.
type Status string

const (
	Fault         Status = "fault"
	Pass          Status = "pass"
	NoData        Status = "no_data"
	NotApplicable Status = "not_applicable"
	Off           Status = "off"
)
