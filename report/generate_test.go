package report

import (
	"math"

	"pgregory.net/rapid"

	"ordercheck/check"
)

// reports draws any report that an engine may hand over: lists nil or empty,
// evidence of every kind, findings that explain one another in any way.
func reports() *rapid.Generator[*check.Report] {
	return rapid.Custom(func(t *rapid.T) *check.Report {
		r := &check.Report{
			Version: 1,
			Steps:   rapid.IntRange(0, 3000).Draw(t, "steps"),
			Inputs:  rapid.SliceOfN(inputs(), 1, 3).Draw(t, "inputs"),
		}
		input := rapid.IntRange(0, len(r.Inputs)-1)
		if rapid.Bool().Draw(t, "faulty") {
			r.Findings = rapid.SliceOfN(findings(input), 0, 8).Draw(t, "findings")
		}
		if rapid.Bool().Draw(t, "noted") {
			r.Notes = rapid.SliceOfN(notes(input), 0, 30).Draw(t, "notes")
		}
		if rapid.Bool().Draw(t, "ruled") {
			r.Rules = rapid.SliceOfN(statuses(), 0, 12).Draw(t, "rules")
		}
		r.Verdict = rapid.SampledFrom([]check.Verdict{check.VerdictClean, check.VerdictUndecided}).Draw(t, "verdict")
		for _, f := range r.Findings {
			if f.Severity == check.Error {
				r.Verdict = check.VerdictFault
			}
		}
		return r
	})
}

func inputs() *rapid.Generator[check.Input] {
	return rapid.Custom(func(t *rapid.T) check.Input {
		return check.Input{
			Path:   rapid.StringN(1, 30, -1).Draw(t, "path"),
			Kind:   rapid.SampledFrom([]string{"recording", "events", "tensors"}).Draw(t, "kind"),
			Events: rapid.IntRange(0, 1000).Draw(t, "events"),
		}
	})
}

// ids draws from few enough that findings meet.
func ids() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"OC1001", "OC1003", "OC2002", "OC2003", "OC6001"})
}

func findings(input *rapid.Generator[int]) *rapid.Generator[check.Finding] {
	return rapid.Custom(func(t *rapid.T) check.Finding {
		f := check.Finding{
			Input:     input.Draw(t, "input"),
			Rule:      ids().Draw(t, "rule"),
			Severity:  rapid.SampledFrom([]check.Severity{check.Error, check.Warning, check.Advice}).Draw(t, "severity"),
			Certainty: rapid.SampledFrom([]check.Certainty{check.Proven, check.Observed, check.Suspected}).Draw(t, "certainty"),
			Rank:      rapid.Ptr(rapid.IntRange(0, 3), true).Draw(t, "rank"),
			Optimizer: rapid.Ptr(rapid.SampledFrom([]string{"0", "1"}), true).Draw(t, "optimizer"),
			Because:   rapid.Ptr(ids(), true).Draw(t, "because"),
			Message:   rapid.StringN(1, 200, -1).Draw(t, "message"),
			Where: check.Where{
				Recording: rapid.Ptr(positions(), true).Draw(t, "recording"),
				Source:    rapid.Ptr(positions(), true).Draw(t, "source"),
			},
		}
		if f.Certainty == check.Suspected && f.Severity == check.Error {
			f.Severity = check.Warning
		}
		at := 0
		for range rapid.IntRange(0, 9).Draw(t, "ranges") {
			from := at + rapid.IntRange(0, 5).Draw(t, "gap")
			to := from + rapid.IntRange(0, 5).Draw(t, "length")
			f.Steps = append(f.Steps, [2]int{from, to})
			f.Count += to - from + 1
			at = to + 2
		}
		if f.Steps != nil {
			f.Step = &f.Steps[0][0]
		}
		for range rapid.IntRange(0, 4).Draw(t, "evidence") {
			f.Evidence = append(f.Evidence, check.Evidence{
				What:  rapid.StringN(1, 60, -1).Draw(t, "what"),
				Value: values().Draw(t, "value"),
			})
		}
		return f
	})
}

// values draws what evidence may hold, the numbers that JSON lacks among it.
func values() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.SampledFrom([]any{math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1), float32(math.Inf(1)), math.MaxFloat64}),
		rapid.Float64().AsAny(),
		rapid.Float32().AsAny(),
		rapid.Int().AsAny(),
		rapid.Uint64().AsAny(),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
	)
}

func positions() *rapid.Generator[check.Position] {
	return rapid.Custom(func(t *rapid.T) check.Position {
		return check.Position{
			File: rapid.StringN(1, 20, -1).Draw(t, "file"),
			Line: rapid.IntRange(0, 99).Draw(t, "line"),
		}
	})
}

func notes(input *rapid.Generator[int]) *rapid.Generator[check.Note] {
	return rapid.Custom(func(t *rapid.T) check.Note {
		return check.Note{
			Input: input.Draw(t, "input"),
			Where: rapid.String().Draw(t, "where"),
			Text:  rapid.StringN(1, 80, -1).Draw(t, "text"),
		}
	})
}

func statuses() *rapid.Generator[check.RuleStatus] {
	return rapid.Custom(func(t *rapid.T) check.RuleStatus {
		s := check.RuleStatus{
			ID:       ids().Draw(t, "id"),
			Severity: rapid.SampledFrom([]check.Severity{check.Error, check.Warning, check.Advice}).Draw(t, "severity"),
			Status: rapid.SampledFrom([]check.Status{
				check.Fault, check.Pass, check.NoData, check.NotApplicable, check.Off,
			}).Draw(t, "status"),
		}
		switch s.Status {
		case check.NoData:
			s.Needs = rapid.SampledFrom([]string{"a second scale", "snapshots around a clip"}).Draw(t, "needs")
		case check.NotApplicable:
			s.Why = rapid.SampledFrom([]string{"one rank", "no schedule"}).Draw(t, "why")
		}
		return s
	})
}
