package record

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// tensorFile is the content of a small snapshot.
func tensorFile(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, []safetensors.Entry{safetensors.F32("grad/w", []int{3}, []float32{1, 2, 3})}, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRanks(t *testing.T) {
	run := mustRead(t, folderOf(
		"recording.json", `{"format": "ordercheck-recording", "version": 1, "world_size": 3}`,
		"events.rank10.jsonl", line(0, ""),
		"events.rank2.jsonl", line(0, `"rank": null`)+"\n"+line(1, `"rank": 2`),
		"events.rank0.jsonl", "",
		"events.rank1.jsonl.bak", "no event",
		"old/events.jsonl", "no event",
	))
	var got []string
	for _, r := range run.Ranks {
		got = append(got, fmt.Sprintf("%d: %d", r.ID, len(r.Events)))
		for _, e := range r.Events {
			if e.Rank != r.ID {
				t.Errorf("an event of rank %d among those of rank %d", e.Rank, r.ID)
			}
		}
	}
	if want := []string{"0: 0", "2: 2", "10: 1"}; !slices.Equal(got, want) {
		t.Errorf("ranks %q, want %q", got, want)
	}
	if run.Kind != Recording || !run.Ordered || len(run.Notes) != 0 || run.Calls() != 3 {
		t.Errorf("kind %s, ordered %v, notes %v, %d calls", run.Kind, run.Ordered, run.Notes, run.Calls())
	}
}

// A lone events file: the name stands in errors and notes, and snapshots are
// looked for where there is a place.
func TestReadEvents(t *testing.T) {
	text := line(3, `"before": "a.safetensors"`) + "\n" + line(4, `"zeal": 1`) + "\n"
	const alone = "an events file alone: no recording.json says which parameters belong to which optimizer"
	run, err := ReadEvents(strings.NewReader(text), "calls.jsonl", folderOf("a.safetensors", tensorFile(t)))
	if err != nil {
		t.Fatal(err)
	}
	if run.Kind != Events || !run.Ordered || run.Calls() != 2 {
		t.Errorf("kind %s, ordered %v, %d calls", run.Kind, run.Ordered, run.Calls())
	}
	want := "calls.jsonl: " + alone + "\nevents: field \"zeal\" of note is not known to this version and is not used (1 times)\n"
	if got := noteTexts(run.Notes); got != want {
		t.Errorf("notes\n%swant\n%s", got, want)
	}
	if e := run.Ranks[0].Events[1]; e.Recorded != (step.Position{File: "calls.jsonl", Line: 2}) {
		t.Errorf("the second event stands at %v", e.Recorded)
	}
	mustOpen(t, run, "a.safetensors")

	if run, err = ReadEvents(strings.NewReader(text), "standard input", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Open("a.safetensors"); err == nil || err.Error() != "there is no folder to look for it in" {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := ReadEvents(strings.NewReader("{}\n"), "calls.jsonl", nil); err == nil || err.Error() != `calls.jsonl:1: the event has no "seq"` {
		t.Errorf("a damaged file: %v", err)
	}
}

func mustOpen(t testing.TB, run *Run, name string) {
	t.Helper()
	f, err := run.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Names(); !slices.Equal(got, []string{"grad/w"}) {
		t.Errorf("%s holds %q", name, got)
	}
}

func TestOpen(t *testing.T) {
	run := &Run{fsys: folderOf("tensors/a.safetensors", tensorFile(t), "b.safetensors", "no tensors, but some text")}
	mustOpen(t, run, "tensors/a.safetensors")
	for name, want := range map[string]string{
		"c.safetensors": "open c.safetensors: file does not exist",
		"tensors":       "tensors is a folder, not a file",
		"b.safetensors": "b.safetensors: safetensors: byte 0: the header's length is given as 8030883942550761326, more than the limit of 100000000; this is no safetensors file, or its beginning is damaged",
	} {
		for _, r := range []*Run{run, {fsys: streamFS{run.fsys}}} {
			if _, err := r.Open(name); err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", name, err, want)
			}
		}
	}
}

// Files that cannot be read at a place are read whole.
func TestOpenWithoutReadAt(t *testing.T) {
	fsys := streamFS{folderOf("recording.json", manifest, "events.jsonl", line(0, `"before": "a.safetensors"`), "a.safetensors", tensorFile(t))}
	if f, err := fsys.Open("a.safetensors"); err != nil {
		t.Fatal(err)
	} else if _, can := f.(io.ReaderAt); can {
		t.Fatal("the files of this test have ReadAt")
	}
	run := mustRead(t, fsys)
	mustOpen(t, run, "a.safetensors")
	names, err := TensorFiles(fsys)
	if err != nil || !slices.Equal(names, []string{"a.safetensors"}) {
		t.Errorf("tensor files %q, %v", names, err)
	}
}

// A tensor file that was asked for by name has to be read; among others it is
// left out, with a note.
func TestReadTensors(t *testing.T) {
	fsys := folderOf("a.st", tensorFile(t), "b.st", "damaged", "c.st", tensorFile(t))
	names := []string{"c.st", "b.st", "a.st", "d.st"}
	const damaged = "b.st: safetensors: byte 0: the file has 7 bytes, but the header's length alone takes 8; the file is damaged or was cut short: copy or write it again"
	if _, err := ReadTensors(fsys, names, true, true); err == nil || err.Error() != damaged {
		t.Errorf("asked for: error %v", err)
	}
	run, err := ReadTensors(fsys, names, true, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := "b.st: " + damaged + "\nd.st: open d.st: file does not exist\n"; noteTexts(run.Notes) != want {
		t.Errorf("notes\n%swant\n%s", noteTexts(run.Notes), want)
	}
	var got []string
	for i, e := range run.Ranks[0].Events {
		got = append(got, e.Recorded.File)
		if e.Seq != i || e.Op != OpTensors || e.Kind != step.Note || !e.After.Looked || !slices.Equal(e.After.Files, got[i:]) || e.Before.Looked {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if want := []string{"c.st", "a.st"}; !slices.Equal(got, want) || run.Kind != Tensors || !run.Ordered {
		t.Errorf("%s of %q, ordered %v", run.Kind, got, run.Ordered)
	}
	if run, _ := ReadTensors(fsys, names[:1], false, true); run.Ordered || len(run.Notes) != 0 {
		t.Errorf("ordered %v, notes %v", run.Ordered, run.Notes)
	}
}

// Recordings are found in the folders below, not too far down.
func TestFindRecordings(t *testing.T) {
	fsys := folderOf("a/recording.json", "", "a/tensors/x", "", "b/c/recording.json", "", "b/notes.json", "",
		"1/2/3/recording.json", "", "1/2/3/4/recording.json", "")
	got := FindRecordings(fsys)
	if want := []string{"1/2/3", "a", "b/c"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	fsys["recording.json"] = fsys["a/recording.json"]
	if got := FindRecordings(fsys); !slices.Contains(got, ".") {
		t.Errorf("found %q, and not the folder itself", got)
	}
	if got := FindRecordings(os.DirFS(filepath.Join(t.TempDir(), "absent"))); len(got) != 0 {
		t.Errorf("found %q where there is nothing", got)
	}
}

// Files are told by what is in them, not by their names.
func TestLooksLike(t *testing.T) {
	fsys := folderOf(
		"a", tensorFile(t), "b.safetensors", "too short", "c.safetensors", "", "d", "\n \t{\"seq\": 0}", "e", "[1]",
		"g", "\x02\x00\x00\x00\x00\x00\x00\x00[]", "f", "\x02\x00\x00\x00\x00\x00\x00\x01{}", "1/a", tensorFile(t), "1/2/3/a", tensorFile(t), "1/2/3/4/a", tensorFile(t),
	)
	names, err := TensorFiles(fsys)
	if want := []string{"1/2/3/a", "1/a", "a"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("tensor files %q, %v, want %q", names, err, want)
	}
	for name, want := range map[string]bool{"a": false, "c.safetensors": false, "d": true, "e": false, "absent": false} {
		if got := LooksLikeEvents(fsys, name); got != want {
			t.Errorf("LooksLikeEvents(%s) = %v", name, got)
		}
	}
	if IsRecording(fsys) || !IsRecording(folderOf("recording.json", "")) {
		t.Error("IsRecording does not look for recording.json")
	}
}

// The recordings of the zoo, where there is one: all are read without a note,
// and every snapshot that an event names can be opened.
func TestZoo(t *testing.T) {
	dir := os.Getenv("ORDERCHECK_ZOO")
	for _, d := range []string{"../shared/zoo", "../../shared/zoo"} {
		if _, err := os.Stat(d); dir == "" && err == nil {
			dir = d
		}
	}
	if dir == "" {
		t.Skip("no zoo of recordings beside this checkout; set ORDERCHECK_ZOO to its folder to read it")
	}
	recordings, err := filepath.Glob(filepath.Join(dir, "*", "recording"))
	if err != nil || len(recordings) == 0 {
		t.Fatalf("%s holds no recordings (%v)", dir, err)
	}
	calls, snapshots := 0, map[string]bool{}
	for _, r := range recordings {
		run, err := ReadRecording(os.DirFS(r))
		if err != nil {
			t.Errorf("%s: %v", r, err)
			continue
		}
		if len(run.Notes) > 0 {
			t.Errorf("%s: notes\n%s", r, noteTexts(run.Notes))
		}
		calls += run.Calls()
		for _, rank := range run.Ranks {
			for _, e := range rank.Events {
				for _, name := range slices.Concat(e.Before.Files, e.After.Files) {
					if key := r + "/" + name; !snapshots[key] {
						snapshots[key] = true
						f, err := run.Open(name)
						if err != nil {
							t.Errorf("%s: %v", r, err)
							continue
						}
						f.Close()
					}
				}
			}
		}
	}
	t.Logf("%d recordings, %d calls, %d snapshots", len(recordings), calls, len(snapshots))
}
