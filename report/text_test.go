package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"ordercheck/check"
)

// rules that the golden files speak of, with titles that stay as they are.
var rules = []check.Rule{
	{
		ID: "OC1001", Severity: check.Error, Title: "clip on gradients that still carry the loss scale",
		Meaning: "The threshold means true gradients.\nHere it meets scaled ones, and nearly all of every gradient is thrown away.\n\n" +
			"Under Adam the loss curve still looks right: the optimizer divides by the size of the gradient again.\n\n    S       threshold\n    65536   0.0000153",
		Wrong: "scaler.scale(loss).backward()\nclip_grad_norm_(params, 1.0)\nscaler.step(optimizer)\n",
		Right: "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n\nif clipping:\n    clip_grad_norm_(params, 1.0)\nscaler.step(optimizer)\n",
		Mend: []check.Remedy{
			{Framework: "PyTorch", Text: "Call scaler.unscale_(optimizer) after the last backward of the step\nand before the clip; scaler.step knows then that it need not divide again. Several optimizers: unscale each."},
			{Framework: "Accelerate", Text: "clip with accelerator.clip_grad_norm_, which unscales first, instead of the function of torch"},
		},
		Needs: "the clip's threshold and norm, and the scale",
		Sources: []string{
			"PyTorch 2.15, docs/source/notes/amp_examples.rst, Gradient clipping",
		},
		Explains: []string{"OC1003", "OC2013"},
	},
	{ID: "OC1003", Severity: check.Error, Title: "the optimizer consumed gradients that still carry the scale", Explains: []string{"OC2002"}},
	{ID: "OC2002", Severity: check.Error, Title: "step applied although gradients were not finite"},
	{ID: "OC2004", Severity: check.Warning, Title: "skipped step moved the schedule"},
	{ID: "OC6001", Severity: check.Advice, Title: "clip active on nearly every step"},
}

// TestText: each file of testdata/text is a story in reports and what is
// printed of them. `go test ./report -rewrite` writes the output anew.
func TestText(t *testing.T) {
	s := schema(t)
	datadriven.Walk(t, "testdata/text", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			opt := Options{Rules: rules, Color: d.HasArg("color")}
			d.MaybeScanArgs(t, "width", &opt.Width)
			var b bytes.Buffer
			switch d.Cmd {
			case "text":
				if err := validate(s, []byte(d.Input)); err != nil {
					d.Fatalf(t, "%v", err)
				}
				r := new(check.Report)
				if err := json.Unmarshal([]byte(d.Input), r); err != nil {
					d.Fatalf(t, "%v", err)
				}
				if err := Text(&b, r, opt); err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "list":
				if err := RuleList(&b, rules, opt); err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "explain":
				if err := Explain(&b, rules[:2], opt); err != nil {
					d.Fatalf(t, "%v", err)
				}
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return strings.ReplaceAll(b.String(), "\x1b", "␛")
		})
	})
}

// TestTextTellsAll: whatever the report, the first line tells the verdict, no
// root is left out, and nothing reaches the terminal but printable text.
func TestTextTellsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := reports().Draw(t, "report")
		var b, again bytes.Buffer
		opt := Options{Rules: rules, Width: rapid.IntRange(0, 120).Draw(t, "width")}
		if err := Text(&b, r, opt); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		first, _, _ := strings.Cut(text, "\n")
		verdict := map[check.Verdict]string{
			check.VerdictFault: " fault", check.VerdictClean: "nothing wrong was found", check.VerdictUndecided: "nothing could be decided",
		}[r.Verdict]
		if !strings.Contains(first, verdict) {
			t.Fatalf("first line of a report with verdict %s: %s", r.Verdict, first)
		}
		for _, f := range r.Findings {
			if !strings.Contains(text, f.Rule) {
				t.Fatalf("%s is not mentioned in\n%s", f.Rule, text)
			}
			label := strings.ToUpper(string(f.Severity)) + " " + f.Rule + "  "
			if f.Because == nil && !strings.Contains(text, label) {
				t.Fatalf("root %s is not shown whole in\n%s", f.Rule, text)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if clean(line) != line {
				t.Fatalf("not printable: %q", line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Fatalf("ends in a space: %q", line)
			}
		}
		if err := Text(&again, r, opt); err != nil || again.String() != text {
			t.Fatal("the same report gave another text")
		}
	})
}

func TestBlocksHoldEveryFindingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := reports().Draw(t, "report")
		n := 0
		for i := range r.Inputs {
			for _, b := range blocks(r.Findings, i) {
				n += 1 + len(b.same) + len(b.explained)
			}
		}
		if n != len(r.Findings) {
			t.Fatalf("%d findings in blocks, %d in the report", n, len(r.Findings))
		}
	})
}
