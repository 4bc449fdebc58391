package check

// Report is what `ordercheck check` found, in the shape of its JSON form
// (version 1, report/schema.json).
type Report struct {
	Version  int          `json:"version"`
	Verdict  Verdict      `json:"verdict"`
	Steps    int          `json:"steps"` // attempts seen, over all inputs
	Inputs   []Input      `json:"inputs"`
	Findings []Finding    `json:"findings"`
	Notes    []Note       `json:"notes"`
	Rules    []RuleStatus `json:"rules"`
}

// Verdict over all inputs.
type Verdict string

const (
	VerdictFault     Verdict = "fault"     // a finding of severity error
	VerdictClean     Verdict = "clean"     // none, and at least one rule of severity error was decided
	VerdictUndecided Verdict = "undecided" // nothing could be decided
)

// Input is one run that was named on the command line.
type Input struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"` // "recording", "tensors"
	Events int    `json:"events"`
}

// Finding is one fault, once per input, rule, rank, optimizer and cause.
type Finding struct {
	Input     int        `json:"input"`
	Rule      string     `json:"rule"`
	Severity  Severity   `json:"severity"`
	Certainty Certainty  `json:"certainty"`
	Step      *int       `json:"step"`  // the first attempt, null where steps are not known
	Steps     [][2]int   `json:"steps"` // closed ranges of attempts
	Count     int        `json:"count"` // attempts in those ranges
	Rank      *int       `json:"rank"`
	Optimizer *string    `json:"optimizer"`
	Because   *string    `json:"because"` // the rule whose finding explains this one; null for a root
	Message   string     `json:"message"`
	Evidence  []Evidence `json:"evidence"`
	Where     Where      `json:"where"`

	grave bool
	began int // the first attempt at which the calls were wrong, with or without effect; -1: not known
}

// Evidence is one number that a finding rests on. Value is a float64 (written
// as "inf", "-inf" or "nan" where it is not finite), an int, a bool or a string.
type Evidence struct {
	What  string `json:"what"`
	Value any    `json:"value"`
}

// Where points at the call, in the recording and in the script that was recorded.
type Where struct {
	Recording *Position `json:"recording,omitempty"`
	Source    *Position `json:"source,omitempty"`
}

// Position is a line of a file.
type Position struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// Note is something worth knowing that is no finding: what was left unread, what is missing.
type Note struct {
	Input int    `json:"input"`
	Where string `json:"where"`
	Text  string `json:"text"`
}

// RuleStatus is the worst status of a rule over all inputs.
type RuleStatus struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Status   Status   `json:"status"`
	Why      string   `json:"why,omitempty"`   // not_applicable
	Needs    string   `json:"needs,omitempty"` // no_data
}
