package record

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"ordercheck/step"
)

// FuzzEvents reads any bytes as an events file, and checks what is read: seq
// rises, every event stands at its line, memory is bounded by what was given,
// and what a writer makes of the events is read as the same events.
//
//	go test ./record -run '^$' -fuzz FuzzEvents -fuzztime 60s
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{}", "null\n", "\x00", line(0, ""), line(0, "") + "\n" + line(1, ""), line(3, "") + "\n" + line(3, ""),
		line(1<<53, `"rank": 0, "step": null, "micro": 2, "op": "step"`),
		line(0, `"scale": NaN, "norm": "-inf", "threshold": 1e999, "lr": [0.1, Infinity], "value": {"a": [1]}`),
		line(0, `"covers": ["w", null], "before": [], "after": "tensors/a", "text": "NaN \"Infinity\" \\"`),
		line(0, `"after_summary": {"grad/w": {"n": 3, "nonfinite": 1, "max": "inf", "sumsq": 1e300, "sample": [[0, 1], [1e300, NaN], [2]]}}`),
		line(0, `"found_inf": 1.0, "applied": null, "zeal": {"a": [{}]}, "scaler": 0, "optimizer": "é\ud800"`),
		line(0, `"before": "../../etc/passwd"`), line(0, `"x": `+strings.Repeat("[", 10001)+strings.Repeat("]", 10001)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		events, notes, err := readEvents(bytes.NewReader(b), "calls.jsonl", 0)
		runtime.ReadMemStats(&after)
		// An event is some 1000 bytes; the shortest line that makes one has 20.
		if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(b)); used > limit {
			t.Fatalf("%d bytes were allocated for %d", used, len(b))
		}
		if err != nil {
			if events != nil || notes != nil || !strings.HasPrefix(err.Error(), "calls.jsonl:") {
				t.Fatalf("%d events, %d notes, error %v", len(events), len(notes), err)
			}
			return
		}
		lines := bytes.Count(b, []byte("\n")) + 1
		var text bytes.Buffer
		for i, e := range events {
			if i > 0 && (e.Seq <= events[i-1].Seq || e.Recorded.Line <= events[i-1].Recorded.Line) {
				t.Fatalf("seq %d at %v follows seq %d at %v", e.Seq, e.Recorded, events[i-1].Seq, events[i-1].Recorded)
			}
			if e.Rank != 0 || e.Recorded.Line > lines || e.Recorded.File != "calls.jsonl" || e.Kind != step.KindOf(e.Op) || e.Inferred {
				t.Fatalf("read %+v", e)
			}
			text.Write(append(wireLine(t, &e), '\n'))
		}
		again, _, err := readEvents(&text, "again.jsonl", 0)
		if err != nil || len(again) != len(events) {
			t.Fatalf("written again, %d of %d events are read: %v", len(again), len(events), err)
		}
		for i := range events {
			if got, want := spelled(again[i]), spelled(events[i]); got != want {
				t.Fatalf("written again\n%s\nis read as\n%s", want, got)
			}
		}
	})
}

// wireLine is the line that a writer makes of an event.
func wireLine(t *testing.T, e *step.Event) []byte {
	t.Helper()
	w := &Writer{events: map[int]*bytes.Buffer{}, seq: map[int]int{0: e.Seq}, world: 1}
	if err := w.Event(0, fieldsOf(e)); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(w.events[0].Bytes(), []byte("\n"))
}

// FuzzManifest reads any bytes as recording.json. What is accepted is of this
// format, and written again it is read as the same.
//
//	go test ./record -run '^$' -fuzz FuzzManifest -fuzztime 60s
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[]", manifest, `{"format": "ordercheck-recording", "version": 2}`,
		`{"format": "ordercheck-recording", "version": 1, "world_size": 2, "source": {"framework": "torch", "version": "2.15.0", "script": "train.py"},
		"precision": {"autocast": "float16"},
		"scalers": {"0": {"policy": "torch.GradScaler", "enabled": false, "init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}},
		"optimizers": {"0": {"name": "AdamW", "params": ["0.weight"], "continues": null, "settings": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": "inf", "momentum": NaN, "dampening": -Infinity}},
		"1": {"params_by_rank": {"0": ["a"], "1": []}}},
		"parameters": {"0.weight": {"dtype": "float32", "shape": [32, 8], "master": null, "same_as": "b"}},
		"declared": {"clip": {"rule": "global_norm", "max_norm": 1.0, "norm_type": 2, "eps": 1e-6, "covers": null}, "accumulation": 4, "schedule": "per_update"}}`,
		`{"FORMAT": "ordercheck-recording", "Version": 1, "scalers": null, "optimizers": {"": {}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "recording.json:") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		if m.Format != formatName || m.Version != formatVersion || m.WorldSize < 0 {
			t.Fatalf("read %+v", m)
		}
		once, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(once)
		if err != nil {
			t.Fatalf("%s, read again: %v", once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s, read and written again, is %s (%v)", once, twice, err)
		}
	})
}
