package check

import (
	"cmp"
	"slices"

	"ordercheck/evidence"
	"ordercheck/record"
	"ordercheck/step"
)

// Source is one run to be checked.
type Source struct {
	Path string // as it was named
	Run  *record.Run
}

// Options say what is wanted, and declare what a file cannot say.
type Options struct {
	Rules   func(id string) bool // which rules are decided; nil: all
	MaxNorm float64              // the intended threshold in the unit of true gradients; 0: the recording's own declaration
}

// Run is one run with its evidence, as the rules see it.
type Run struct {
	*record.Run
	Stories []*evidence.Story // one a rank
	Book    *evidence.Book
	MaxNorm step.Maybe[float64] // declared
}

// Outcome is what a rule says of a run.
type Outcome struct {
	Status   Status
	Findings []Finding
	Why      string // of not_applicable
	Needs    string // of no_data; empty: what the rule generally needs
}

func passed() Outcome                     { return Outcome{Status: Pass} }
func notApplicable(why string) Outcome    { return Outcome{Status: NotApplicable, Why: why} }
func noData(needs string) Outcome         { return Outcome{Status: NoData, Needs: needs} }
func faults(findings []Finding) Outcome   { return Outcome{Status: Fault, Findings: findings} }
func (o Outcome) worse(than Outcome) bool { return rank(o.Status) > rank(than.Status) }

// rank orders the statuses for reports over several inputs.
func rank(s Status) int {
	return slices.Index([]Status{Off, NotApplicable, Pass, NoData, Fault}, s)
}

// Check decides the rules over each source and reports what it found.
func Check(sources []Source, opt Options) *Report {
	r := &Report{
		Version: 1, Inputs: []Input{}, Findings: []Finding{}, Notes: []Note{},
	}
	worst := make([]Outcome, len(Rules))
	for i := range worst {
		worst[i].Status = Off
	}
	for n, src := range sources {
		r.Inputs = append(r.Inputs, Input{Path: src.Path, Kind: src.Run.Kind, Events: src.Run.Calls()})
		run := newRun(src.Run, opt)
		var findings []Finding
		for i := range Rules {
			if opt.Rules != nil && !opt.Rules(Rules[i].ID) {
				continue
			}
			out := noData(needCalls)
			if Rules[i].Tensors || !run.silent() {
				out = Rules[i].decide(run)
			}
			if out.Status == NoData && out.Needs == "" {
				out.Needs = Rules[i].Needs
			}
			for _, f := range out.Findings {
				f.Input, f.Rule, f.Severity = n, Rules[i].ID, Rules[i].Severity
				if f.grave {
					f.Severity = Error
				}
				if f.Certainty == Suspected && f.Severity == Error {
					f.Severity = Warning
				}
				findings = append(findings, f)
			}
			if out.worse(worst[i]) {
				worst[i] = Outcome{Status: out.Status, Why: out.Why, Needs: out.Needs}
			}
		}
		findRoots(findings)
		slices.SortStableFunc(findings, byImportance)
		r.Findings = append(r.Findings, findings...)
		for _, note := range append(src.Run.Notes, run.Book.Notes...) {
			r.Notes = append(r.Notes, Note{Input: n, Where: note.Where, Text: note.Text})
		}
		r.Steps += attempts(run)
		run.Book.Close()
	}
	for i, out := range worst {
		r.Rules = append(r.Rules, RuleStatus{
			ID: Rules[i].ID, Severity: Rules[i].Severity, Status: out.Status, Why: out.Why, Needs: out.Needs,
		})
	}
	r.Verdict = verdict(r)
	return r
}

func newRun(rec *record.Run, opt Options) *Run {
	run := &Run{Run: rec, Book: evidence.NewBook(rec)}
	if c := rec.Manifest.Declared.Clip; c != nil && c.MaxNorm != nil {
		run.MaxNorm = step.Some(float64(*c.MaxNorm))
	}
	if opt.MaxNorm != 0 {
		run.MaxNorm = step.Some(opt.MaxNorm)
	}
	ranks := rec.Ranks
	if rec.Kind == record.Tensors && rec.Ordered {
		ranks = []record.Rank{evidence.Reconstruct(rec, run.Book)}
	}
	for _, rank := range ranks {
		run.Stories = append(run.Stories, evidence.Tell(rec, rank, run.Book, evidence.Declared{MaxNorm: run.MaxNorm}))
	}
	return run
}

func verdict(r *Report) Verdict {
	for _, f := range r.Findings {
		if f.Severity == Error {
			return VerdictFault
		}
	}
	for _, s := range r.Rules {
		if s.Severity == Error && s.Status == Pass {
			return VerdictClean
		}
	}
	return VerdictUndecided
}

// attempts counts the attempts that the events name.
func attempts(run *Run) int {
	seen := map[int]bool{}
	for _, rank := range run.Ranks {
		for _, e := range rank.Events {
			if e.Attempt.Known {
				seen[e.Attempt.Value] = true
			}
		}
	}
	return len(seen)
}

// byImportance puts errors first, then what is surer, then what came first.
func byImportance(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(severityOrder(a.Severity), severityOrder(b.Severity)),
		cmp.Compare(certaintyOrder(a.Certainty), certaintyOrder(b.Certainty)),
		cmp.Compare(firstStep(a), firstStep(b)),
		cmp.Compare(a.Rule, b.Rule),
	)
}

func severityOrder(s Severity) int { return slices.Index([]Severity{Error, Warning, Advice}, s) }
func certaintyOrder(c Certainty) int {
	return slices.Index([]Certainty{Proven, Observed, Suspected}, c)
}

func firstStep(f Finding) int {
	if f.Step == nil {
		return -1
	}
	return *f.Step
}
