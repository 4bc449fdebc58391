package report

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"ordercheck/check"
)

// schema compiles the schema, which must itself be a valid one.
func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("report.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("report.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate checks a document, given as JSON text, against the schema.
func validate(s *jsonschema.Schema, text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestJSONIsValidAndLosesNothing(t *testing.T) {
	s := schema(t)
	rapid.Check(t, func(t *rapid.T) {
		r := reports().Draw(t, "report")
		var b bytes.Buffer
		if err := JSON(&b, r); err != nil {
			t.Fatal(err)
		}
		if err := validate(s, b.Bytes()); err != nil {
			t.Fatalf("%v\n%s", err, b.Bytes())
		}
		if bytes.Contains(b.Bytes(), []byte("\n ]\n]")) || !bytes.HasSuffix(b.Bytes(), []byte("\n}\n")) {
			t.Fatalf("badly laid out:\n%s", b.Bytes())
		}
		back := new(check.Report)
		if err := json.Unmarshal(b.Bytes(), back); err != nil {
			t.Fatal(err)
		}
		if got, want := canonical(t, back), canonical(t, r); !reflect.DeepEqual(got, want) {
			t.Fatalf("read back:\n%#v\nwritten:\n%#v", got, want)
		}
	})
}

// canonical brings a report into a form that does not tell nil from empty, nor
// one kind of number from another.
func canonical(t *rapid.T, r *check.Report) any {
	c := *r
	c.Findings = nil
	for _, f := range r.Findings {
		f.Evidence = finite(f.Evidence)
		f.Steps = list(f.Steps)
		c.Findings = append(c.Findings, f)
	}
	c.Inputs, c.Findings, c.Notes, c.Rules = list(c.Inputs), list(c.Findings), list(c.Notes), list(c.Rules)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestJSONLeavesTheReport(t *testing.T) {
	r := &check.Report{Version: 1, Verdict: check.VerdictFault, Findings: []check.Finding{{
		Rule: "OC1001", Severity: check.Error, Certainty: check.Proven, Message: "m",
		Evidence: []check.Evidence{{What: "norm", Value: math.Inf(1)}},
	}}}
	if err := JSON(new(bytes.Buffer), r); err != nil {
		t.Fatal(err)
	}
	if x := r.Findings[0].Evidence[0].Value; x != math.Inf(1) {
		t.Errorf("evidence is now %v", x)
	}
	if r.Inputs != nil || r.Findings[0].Steps != nil {
		t.Error("a nil list was replaced")
	}
}

func TestJSONLayout(t *testing.T) {
	r := sample()
	r.Findings[0].Message = `quotes " and \ and , and {[<&>]}`
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	want := `{
 "version": 1,
 "verdict": "fault",
 "steps": 2,
 "inputs": [
  {"path": "run1", "kind": "recording", "events": 9}
 ],
 "findings": [
  {"input": 0, "rule": "OC1001", "severity": "error", "certainty": "proven", "step": 0, "steps": [[0, 1]], "count": 2, ` +
		`"rank": 0, "optimizer": "0", "because": null, "message": "quotes \" and \\ and , and {[<&>]}", ` +
		`"evidence": [{"what": "norm", "value": "inf"}, {"what": "scale", "value": 65536}], ` +
		`"where": {"recording": {"file": "events.jsonl", "line": 5}}}
 ],
 "notes": [],
 "rules": [
  {"id": "OC1001", "severity": "error", "status": "fault"},
  {"id": "OC4003", "severity": "error", "status": "not_applicable", "why": "one rank"}
 ]
}
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// sample is a small report with something in every list but the notes.
func sample() *check.Report {
	step, rank, optimizer := 0, 0, "0"
	return &check.Report{
		Version: 1, Verdict: check.VerdictFault, Steps: 2,
		Inputs: []check.Input{{Path: "run1", Kind: "recording", Events: 9}},
		Findings: []check.Finding{{
			Rule: "OC1001", Severity: check.Error, Certainty: check.Proven,
			Step: &step, Steps: [][2]int{{0, 1}}, Count: 2, Rank: &rank, Optimizer: &optimizer, Message: "m",
			Evidence: []check.Evidence{{What: "norm", Value: math.Inf(1)}, {What: "scale", Value: 65536.0}},
			Where:    check.Where{Recording: &check.Position{File: "events.jsonl", Line: 5}},
		}},
		Rules: []check.RuleStatus{
			{ID: "OC1001", Severity: check.Error, Status: check.Fault},
			{ID: "OC4003", Severity: check.Error, Status: check.NotApplicable, Why: "one rank"},
		},
	}
}

// TestSchemaAcceptsTheContract: the example of the published contract, in which
// a rule that was not decided may leave its severity out.
func TestSchemaAcceptsTheContract(t *testing.T) {
	const contract = `{"version": 1, "verdict": "fault", "steps": 12,
 "inputs": [{"path": "run1", "kind": "recording", "events": 96}],
 "findings": [{"input": 0, "rule": "OC1001", "severity": "error", "certainty": "proven", "step": 0, "steps": [[0, 8], [10, 11]], "count": 11, "rank": 0, "optimizer": "0", "because": null,
   "message": "…", "evidence": [{"what": "norm before clip / scale", "value": 1.07}],
   "where": {"recording": {"file": "events.jsonl", "line": 42}, "source": {"file": "train.py", "line": 52}}}],
 "notes": [{"input": 0, "where": "…", "text": "…"}],
 "rules": [{"id": "OC1001", "severity": "error", "status": "fault"}, {"id": "OC4003", "status": "not_applicable", "why": "one rank"}, {"id": "OC2003", "status": "no_data", "needs": "optimizer state before and after a skipped step"}]}`
	if err := validate(schema(t), []byte(contract)); err != nil {
		t.Error(err)
	}
}

// TestSchemaRejects changes one place of a valid document at a time.
func TestSchemaRejects(t *testing.T) {
	s := schema(t)
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	valid := b.String()
	if err := validate(s, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new string }{
		{"another version", `"version": 1`, `"version": 2`},
		{"unknown verdict", `"verdict": "fault"`, `"verdict": "bad"`},
		{"clean with an error", `"verdict": "fault"`, `"verdict": "clean"`},
		{"undecided with an error", `"verdict": "fault"`, `"verdict": "undecided"`},
		{"fault without an error", `"severity": "error", "certainty"`, `"severity": "note", "certainty"`},
		{"an error only suspected", `"certainty": "proven"`, `"certainty": "suspected"`},
		{"unknown certainty", `"certainty": "proven"`, `"certainty": "sure"`},
		{"negative steps", `"steps": 2`, `"steps": -1`},
		{"a broken count", `"count": 2`, `"count": 2.5`},
		{"a key too many", `"version": 1`, `"version": 1, "extra": 0`},
		{"a key too many in an input", `"path": "run1"`, `"path": "run1", "x": 0`},
		{"a key too many in a finding", `"rank": 0`, `"rank": 0, "x": 0`},
		{"a key too many in evidence", `"what": "norm"`, `"what": "norm", "x": 0`},
		{"a key too many in where", `"where": {`, `"where": {"x": 0, `},
		{"a key too many in a position", `"line": 5`, `"line": 5, "x": 0`},
		{"a key too few", `"rank": 0, `, ``},
		{"no notes", `"notes": [],`, ``},
		{"notes null", `"notes": []`, `"notes": null`},
		{"unknown kind", `"kind": "recording"`, `"kind": "guess"`},
		{"bad rule id", `"rule": "OC1001"`, `"rule": "OC101"`},
		{"rule id with a tail", `"rule": "OC1001"`, `"rule": "OC10011"`},
		{"bad because", `"because": null`, `"because": "clip"`},
		{"range of three", `[[0, 1]]`, `[[0, 1, 2]]`},
		{"range of one", `[[0, 1]]`, `[[0]]`},
		{"steps null", `"steps": [[0, 1]]`, `"steps": null`},
		{"evidence null", `"value": 65536`, `"value": null`},
		{"evidence a list", `"value": 65536`, `"value": [1]`},
		{"no message", `"message": "m"`, `"message": ""`},
		{"optimizer a number", `"optimizer": "0"`, `"optimizer": 0`},
		{"unknown status", `"status": "fault"`, `"status": "maybe"`},
		{"not applicable without why", `, "why": "one rank"`, ``},
		{"why of a fault", `"status": "fault"`, `"status": "fault", "why": "x"`},
		{"no data without needs", `"status": "fault"`, `"status": "no_data"`},
		{"needs of a fault", `"status": "fault"`, `"status": "fault", "needs": "x"`},
		{"a note without text", `"notes": []`, `"notes": [{"input": 0, "where": "x"}]`},
	} {
		broken := strings.Replace(valid, c.old, c.new, 1)
		if broken == valid {
			t.Errorf("%s: %q does not stand in the document", c.name, c.old)
		} else if err := validate(s, []byte(broken)); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}

// TestSchemaRejectsAnyLoss takes away one key, or replaces one value by
// null, of a drawn report: nothing of it is optional but what the contract lets
// be absent.
func TestSchemaRejectsAnyLoss(t *testing.T) {
	s := schema(t)
	optional := map[string]bool{"severity": true, "recording": true, "source": true} // severity: of a rule only
	nullable := map[string]bool{"step": true, "rank": true, "optimizer": true, "because": true}
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := JSON(&b, reports().Draw(t, "report")); err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		var places []place
		walk(doc, &places)
		p := rapid.SampledFrom(places).Draw(t, "place")
		if rapid.Bool().Draw(t, "null") {
			if nullable[p.key] {
				return
			}
			p.in[p.key] = nil
		} else {
			if _, ofFinding := p.in["rule"]; optional[p.key] && !ofFinding {
				return
			}
			delete(p.in, p.key)
		}
		if err := s.Validate(doc); err == nil {
			t.Fatalf("accepted without %q in %v", p.key, p.in)
		}
	})
}

type place struct {
	in  map[string]any
	key string
}

// walk lists every key of every object in v, in order.
func walk(v any, places *[]place) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			*places = append(*places, place{v, k})
			walk(v[k], places)
		}
	case []any:
		for _, e := range v {
			walk(e, places)
		}
	}
}
