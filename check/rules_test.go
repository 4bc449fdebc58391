package check

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

var ruleID = regexp.MustCompile(`^OC[0-6][0-9]{3}$`)

// frameworks that a remedy may be for, in the order of a Mend list.
var frameworks = []string{"PyTorch", "Accelerate", "Lightning", "DeepSpeed", "Keras", "JAX"}

// notError holds the severities of the rule table in the design that are not E.
var notError = map[string]Severity{
	"OC0001": Warning, "OC1013": Warning, "OC2004": Warning, "OC2008": Warning, "OC2012": Warning,
	"OC5001": Warning, "OC5002": Warning, "OC5003": Warning, "OC6003": Warning, "OC6006": Warning,
	"OC6001": Advice, "OC6002": Advice, "OC6004": Advice, "OC6005": Advice,
}

func TestRegistryIsGenerated(t *testing.T) {
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command on the PATH")
	}
	var stderr bytes.Buffer
	cmd := exec.Command(gotool, "run", "generate.go", "-o", "-")
	cmd.Stderr = &stderr
	want, err := cmd.Output()
	if err != nil {
		t.Fatalf("go run generate.go -o -: %v\n%s", err, &stderr)
	}
	got, err := os.ReadFile("registry.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("registry.go is stale: run go generate ./check\ngot\n%s\nwant\n%s", got, want)
	}
}

// Every rule stands in the file that bears its name, and every such file is in the list.
func TestRuleFiles(t *testing.T) {
	files, err := filepath.Glob("oc[0-9][0-9][0-9][0-9].go")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range files {
		want = append(want, strings.ToUpper(strings.TrimSuffix(f, ".go")))
	}
	for _, r := range Rules {
		got = append(got, r.ID)
	}
	if len(want) == 0 {
		t.Fatal("found no rule files")
	}
	if !slices.IsSorted(got) {
		t.Errorf("Rules are not sorted: %v", got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Rules %v, files %v", got, want)
	}
}

func TestRulesAreDocumented(t *testing.T) {
	for _, r := range Rules {
		t.Run(r.ID, func(t *testing.T) {
			if !ruleID.MatchString(r.ID) {
				t.Errorf("ID %q is not of the form %v", r.ID, ruleID)
			}
			lineOf(t, "Title", r.Title)
			lineOf(t, "Needs", r.Needs)
			for _, s := range r.Sources {
				lineOf(t, "Sources", s)
			}
			if first, _ := utf8.DecodeRuneInString(r.Title); !unicode.IsLower(first) {
				t.Errorf("Title %q does not begin in lower case", r.Title)
			}
			if len(r.Sources) == 0 {
				t.Error("no Sources")
			}

			text(t, "Meaning", r.Meaning)
			if n := strings.Count(r.Meaning, "\n\n") + 1; n < 2 || n > 4 {
				t.Errorf("Meaning has %d paragraphs, want 2 to 4", n)
			}
			text(t, "Wrong", r.Wrong)
			text(t, "Right", r.Right)
			if r.Wrong == r.Right {
				t.Error("Wrong and Right are the same")
			}

			last := -1
			for _, m := range r.Mend {
				text(t, "Mend for "+m.Framework, m.Text)
				i := slices.Index(frameworks, m.Framework)
				if i < 0 {
					t.Errorf("Mend: unknown framework %q", m.Framework)
				} else if i <= last {
					t.Errorf("Mend: %s is out of order or twice there, want the order %v", m.Framework, frameworks)
				}
				last = i
			}
			if len(r.Mend) == 0 || r.Mend[0].Framework != "PyTorch" {
				t.Error("Mend does not begin with PyTorch")
			}

			want, ok := notError[r.ID]
			if !ok {
				want = Error
			}
			if r.Severity != want {
				t.Errorf("Severity %q, the design says %q", r.Severity, want)
			}
			if r.decide == nil {
				t.Error("no decide function")
			}
		})
	}
}

// line reports s unless it is one line of text that ends without a period.
func lineOf(t *testing.T, field, s string) {
	t.Helper()
	if s == "" || s != strings.TrimSpace(s) || strings.Contains(s, "\n") || strings.HasSuffix(s, ".") {
		t.Errorf("%s is empty, not one trimmed line, or ends with a period: %q", field, s)
	}
}

// text reports s unless it is text whose lines are trimmed and whose paragraphs
// are parted by single empty lines.
func text(t *testing.T, field, s string) {
	t.Helper()
	if s == "" || s != strings.TrimSpace(s) || strings.Contains(s, "\n\n\n") {
		t.Errorf("%s is empty, not trimmed, or has two empty lines in a row: %q", field, s)
	}
	for l := range strings.Lines(s) {
		if l = strings.TrimSuffix(l, "\n"); l != strings.TrimRightFunc(l, unicode.IsSpace) || strings.Contains(l, "\t") {
			t.Errorf("%s: a tab or a space at the end of the line: %q", field, l)
		}
	}
}

// A rule explains others and never, over however many, itself: the engine follows
// these edges to the roots.
func TestExplains(t *testing.T) {
	explains := map[string][]string{}
	for _, r := range Rules {
		explains[r.ID] = r.Explains
		for i, id := range r.Explains {
			if !ruleID.MatchString(id) {
				t.Errorf("%s explains %q: not of the form %v", r.ID, id, ruleID)
			}
			if slices.Contains(r.Explains[:i], id) {
				t.Errorf("%s explains %s twice", r.ID, id)
			}
		}
		if !slices.IsSorted(r.Explains) {
			t.Errorf("%s: Explains is not sorted: %v", r.ID, r.Explains)
		}
	}
	for root := range explains {
		reached := map[string]bool{}
		var follow func(id string)
		follow = func(id string) {
			for _, next := range explains[id] {
				if !reached[next] {
					reached[next] = true
					follow(next)
				}
			}
		}
		if follow(root); reached[root] {
			t.Errorf("%s explains itself, at once or over others", root)
		}
	}
}

// The loops are Python: a reader may paste them.
func TestLoopsAreValidPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on the PATH to compile the loops with")
	}
	if err := exec.Command(python, "-c", "").Run(); err != nil {
		t.Skipf("%s does not run: %v", python, err)
	}
	loops := map[string]string{}
	for _, r := range Rules {
		loops[r.ID+" Wrong"] = r.Wrong
		loops[r.ID+" Right"] = r.Right
	}
	input, err := json.Marshal(loops)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", `
import json, sys
for name, source in sorted(json.load(sys.stdin).items()):
    try:
        compile(source, name, "exec")
    except SyntaxError as e:
        print(f"{name}, line {e.lineno}: {e.msg}: {(e.text or '').strip()}")
`)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", python, err, out)
	}
	for l := range strings.Lines(string(out)) {
		t.Error(strings.TrimSuffix(l, "\n"))
	}
}
