package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"ordercheck/check"
)

func TestExitCode(t *testing.T) {
	errorFinding := []check.Finding{{Severity: check.Advice}, {Severity: check.Error}}
	warnings := []check.Finding{{Severity: check.Warning}, {Severity: check.Advice}}
	lacks := func(s check.Severity, status check.Status) []check.RuleStatus {
		return []check.RuleStatus{{Severity: check.Error, Status: check.Pass}, {Severity: s, Status: status}}
	}
	for _, c := range []struct {
		name   string
		r      *check.Report
		err    error
		strict bool
		want   int
	}{
		{"clean", &check.Report{}, nil, false, 0},
		{"clean, strict", &check.Report{Rules: lacks(check.Error, check.Pass)}, nil, true, 0},
		{"warnings", &check.Report{Findings: warnings}, nil, true, 0},
		{"an error", &check.Report{Findings: errorFinding}, nil, false, 1},
		{"data lacked", &check.Report{Rules: lacks(check.Error, check.NoData)}, nil, false, 0},
		{"data lacked, strict", &check.Report{Rules: lacks(check.Error, check.NoData)}, nil, true, 3},
		{"data lacked by a warning, strict", &check.Report{Rules: lacks(check.Warning, check.NoData)}, nil, true, 0},
		{"not applicable, strict", &check.Report{Rules: lacks(check.Error, check.NotApplicable)}, nil, true, 0},
		{"off, strict", &check.Report{Rules: lacks(check.Error, check.Off)}, nil, true, 0},
		{"an error before lack", &check.Report{Findings: errorFinding, Rules: lacks(check.Error, check.NoData)}, nil, true, 1},
		{"unread before an error", &check.Report{Findings: errorFinding}, io.ErrUnexpectedEOF, false, 2},
		{"unread", nil, io.ErrUnexpectedEOF, true, 2},
	} {
		if got := exitCode(c.r, c.err, c.strict); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

// TestCheckPassesOptions: what the flags declare reaches the engine.
func TestCheckPassesOptions(t *testing.T) {
	if len(check.Rules) < 2 {
		t.Skip("too few rules to choose from")
	}
	first, last := check.Rules[0].ID, check.Rules[len(check.Rules)-1].ID
	var paths []string
	var opt check.Options
	withEngine(t, func(p []string, o check.Options) (*check.Report, error) {
		paths, opt = p, o
		return &check.Report{Version: 1, Verdict: check.VerdictClean}, nil
	})
	var out, errs bytes.Buffer
	code := ordercheck([]string{"check", "a", "--max-norm", "0.5", "--rules", "-" + first, "-", "--", "--b"}, streams{&out, &errs})
	if code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d, %s", code, errs.String())
	}
	if got := strings.Join(paths, " "); got != "a - --b" {
		t.Errorf("paths %s", got)
	}
	if opt.MaxNorm != 0.5 || opt.Rules(first) || !opt.Rules(last) {
		t.Errorf("max norm %g, first rule %t, last rule %t", opt.MaxNorm, opt.Rules(first), opt.Rules(last))
	}
	if code := ordercheck([]string{"check", "a"}, streams{&out, &errs}); code != 0 || opt.Rules != nil || opt.MaxNorm != 0 {
		t.Errorf("without flags: exit code %d, options %+v", code, opt)
	}
}

// TestCheckFullStandardOutput: a report that could not be written is not a result.
func TestCheckFullStandardOutput(t *testing.T) {
	withEngine(t, func([]string, check.Options) (*check.Report, error) {
		return &check.Report{Version: 1, Verdict: check.VerdictClean}, nil
	})
	var errs bytes.Buffer
	code := ordercheck([]string{"check", "a"}, streams{full{}, &errs})
	if want := "ordercheck check: standard output: no space left\n"; code != 2 || errs.String() != want {
		t.Errorf("exit code %d, %q; want 2, %q", code, errs.String(), want)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func withEngine(t *testing.T, e func([]string, check.Options) (*check.Report, error)) {
	t.Helper()
	old := engine
	engine = e
	t.Cleanup(func() { engine = old })
}
