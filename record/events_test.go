package record

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ordercheck/step"
)

// readOne reads one event with these fields.
func readOne(t *testing.T, fields string) step.Event {
	t.Helper()
	run := mustRead(t, events(line(0, fields)))
	if len(run.Notes) > 0 {
		t.Errorf("%s: notes %v", fields, run.Notes)
	}
	return run.Ranks[0].Events[0]
}

// Numbers that are not finite, as the format writes them and as Python does.
func TestNotFinite(t *testing.T) {
	for text, want := range map[string]float64{
		`"inf"`: math.Inf(1), `"+inf"`: math.Inf(1), `"Infinity"`: math.Inf(1), `Infinity`: math.Inf(1), `1e999`: math.Inf(1),
		`"-inf"`: math.Inf(-1), `"-Infinity"`: math.Inf(-1), `-Infinity`: math.Inf(-1), `-1e999`: math.Inf(-1),
		`"nan"`: math.NaN(), `"NaN"`: math.NaN(), `NaN`: math.NaN(),
		`65536`: 65536, `65536.0`: 65536, `6.5536e4`: 65536, `-0.0`: math.Copysign(0, -1), `5e-324`: 5e-324,
	} {
		e := readOne(t, fmt.Sprintf(`"norm": %s, "lr": [%s, 0.5], "after_summary": {"grad/w": {"n": 1, "max": %s, "sample": [[0, %s]]}}`, text, text, text, text))
		sum := e.After.Summary["grad/w"]
		for name, got := range map[string]float64{"norm": e.Norm.Value, "lr": e.LR[0], "max": sum.Max, "sample": sum.Sample[0].Value} {
			if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%s of %s is %v", name, text, got)
			}
		}
		if !e.Norm.Known || len(e.LR) != 2 {
			t.Errorf("%s: norm known %v, lr %v", text, e.Norm.Known, e.LR)
		}
	}
}

// Bare words are words, not parts of strings.
func TestBareWordsInText(t *testing.T) {
	e := readOne(t, `"text": "NaN \"Infinity\" \\", "key": "-Infinity", "value": NaN, "covers": ["NaN", "\\\"NaN"]`)
	if e.Text != `NaN "Infinity" \` || e.Key != "-Infinity" || !math.IsNaN(e.Value.Value) || e.Covers.Value[1] != `\"NaN` {
		t.Errorf("read %+v", e)
	}
}

// What was looked at: absent is another thing than nothing.
func TestSnapshotNames(t *testing.T) {
	for _, c := range []struct {
		fields        string
		looked, named bool
		files         string
	}{
		{``, false, false, ""},
		{`"before": null`, false, false, ""},
		{`"before": []`, true, false, ""},
		{`"before": "tensors/a.safetensors"`, true, true, "tensors/a.safetensors"},
		{`"before": ["a", "b"]`, true, true, "a b"},
		{`"before_summary": {}`, true, false, ""},
		{`"before_summary": {"grad/w": {"n": 3}}`, true, true, ""},
		{`"before": "a", "before_summary": {"grad/w": {"n": 3}}`, true, true, "a"},
	} {
		for _, side := range []string{"before", "after"} {
			e := readOne(t, strings.ReplaceAll(c.fields, "before", side))
			s, other := e.Before, e.After
			if side == "after" {
				s, other = other, s
			}
			if s.Looked != c.looked || s.Named() != c.named || strings.Join(s.Files, " ") != c.files || other.Looked {
				t.Errorf("%s of %s: %+v", side, c.fields, s)
			}
		}
	}
}

func TestSummaries(t *testing.T) {
	e := readOne(t, `"after_summary": {"grad/w": {"n": 1000, "nonfinite": 2, "max": 3.5, "sumsq": 70, "sample": [[0, 1.5], [999, "-inf"]]}, "grad/b": {}}`)
	want := step.Summary{N: 1000, NonFinite: 2, Max: 3.5, SumSq: 70, Sample: []step.Sample{{Index: 0, Value: 1.5}, {Index: 999, Value: math.Inf(-1)}}}
	if got := e.After.Summary["grad/w"]; fmt.Sprint(got) != fmt.Sprint(want) || len(e.After.Summary) != 2 {
		t.Errorf("read %+v", e.After.Summary)
	}
}

// Fields that recorders write in more than one way.
func TestLenientFields(t *testing.T) {
	if e := readOne(t, `"optimizer": 0, "scaler": "0", "found_inf": 1.0, "called": 0, "applied": 255, "lr": 0.1, "step": 3.0`); e.Optimizer != "0" || e.Scaler != "0" ||
		!step.Is(e.FoundInf, true) || !step.Is(e.Called, false) || !step.Is(e.Applied, true) || len(e.LR) != 1 || !step.Is(e.Attempt, 3) {
		t.Errorf("read %+v", e)
	}
	// A log line may hold any value; only numbers are kept.
	for _, v := range []string{`"text"`, `[1]`, `{"a": 1}`, `true`, `null`} {
		if e := readOne(t, `"value": `+v); e.Value.Known {
			t.Errorf("value %s is %v", v, e.Value.Value)
		}
	}
	// Fields of the format that are not used are no news.
	readOne(t, `"count": 3, "batch": "ab12", "numel": 64`)
}

// A field that is null is as one that is left out.
func TestNullFields(t *testing.T) {
	var fields []string
	for name := range eventFields {
		if name != "seq" && name != "op" {
			fields = append(fields, fmt.Sprintf("%q: null", name))
		}
	}
	got, want := readOne(t, strings.Join(fields, ", ")), readOne(t, "")
	if spelled(got) != spelled(want) {
		t.Errorf("read %+v", got)
	}
}
