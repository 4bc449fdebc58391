package record

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ordercheck/record/folder"
	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// What is written is read back: the same events, in the same order, of every rank.
func TestPropertyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		world := rapid.IntRange(1, 3).Draw(rt, "world size")
		w, err := NewWriter(folder.Dir(dir), Manifest{WorldSize: world})
		if err != nil {
			rt.Fatal(err)
		}
		var want []string
		var events []step.Event
		for rank := range world {
			for seq := range rapid.IntRange(1, 4).Draw(rt, "events") {
				e := drawEvent.Draw(rt, "event")
				e.Seq, e.Rank = seq, rank
				events = append(events, e)
				want = append(want, spelled(e))
			}
		}
		for _, e := range events {
			if err := w.Event(e.Rank, fieldsOf(&e)); err != nil {
				rt.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		run, err := ReadRecording(os.DirFS(dir))
		if err != nil {
			rt.Fatal(err)
		}
		var got []string
		for _, r := range run.Ranks {
			for i, e := range r.Events {
				if e.Recorded.Line != i+1 {
					rt.Fatalf("event %d stands at %v", i, e.Recorded)
				}
				got = append(got, spelled(e))
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("read\n%s\nwrote\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Equal content is one file, other content another; nothing temporary is left.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(folder.Dir(dir), Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range []float32{1, 2, 1, float32(math.NaN())} {
		name, err := w.Snapshot([]safetensors.Entry{safetensors.F32("grad/w", []int{1}, []float32{x})})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if names[0] != names[2] || names[0] == names[1] || names[1] == names[3] {
		t.Errorf("names %q", names)
	}
	if err := w.Event(0, Fields{"op": "note", "after": names}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run := mustRead(t, os.DirFS(dir))
	for _, name := range run.Ranks[0].Events[0].After.Files {
		mustOpen(t, run, name)
	}
	var files []string
	for _, pattern := range []string{"*", ".*", "tensors/*", "tensors/.*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != 6 { // recording.json, events.jsonl, tensors and three in it
		t.Errorf("the recording holds %q", files)
	}
	if _, err := w.Snapshot([]safetensors.Entry{{Name: "grad/w", DType: "F32", Shape: []int{2}}}); err == nil {
		t.Error("two elements without data were written")
	}
}

// A file that cannot take its place leaves nothing behind.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(folder.Dir(dir), Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Event(0, Fields{"op": "note"}), os.Mkdir(filepath.Join(dir, "events.jsonl"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Error("events were written in place of a folder")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

// An event that cannot be written leaves no gap and no trace.
func TestEventsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(folder.Dir(dir), Manifest{WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rank   int
		fields Fields
		sound  bool
	}{
		{0, Fields{"op": "note"}, true},
		{0, Fields{"op": "note", "text": func() {}}, false},
		{1, Fields{"op": "note"}, false},
		{-1, Fields{"op": "note"}, false},
		{0, Fields{"op": "note"}, true},
	} {
		if err := w.Event(c.rank, c.fields); (err == nil) != c.sound {
			t.Errorf("%v of rank %d: error %v", c.fields, c.rank, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run := mustRead(t, os.DirFS(dir))
	if len(run.Notes) != 0 || run.Calls() != 2 {
		t.Errorf("%d events, notes %v", run.Calls(), run.Notes)
	}
}
