package record

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// Recordings that cannot be read: the error says where, and what is wrong.
func TestDamagedRecordings(t *testing.T) {
	const (
		syntax = "; one event a line is expected"
		number = ` is no number; not-finite ones are "inf", "-inf" or "nan"`
	)
	one := line(0, "")
	for _, c := range []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		// recording.json
		{"no recording.json", folderOf("events.jsonl", one), `open recording.json: file does not exist`},
		{"empty recording.json", folderOf("recording.json", ""), `recording.json:1: unexpected end of JSON input`},
		{"cut", folderOf("recording.json", "{\n\"format\":\n"), `recording.json:3: unexpected end of JSON input`},
		{"syntax", folderOf("recording.json", "{\n\"format\" 1}"), `recording.json:2: invalid character '1' after object key`},
		{"a fault behind bare words", folderOf("recording.json", "{\"more\": ["+strings.Repeat("NaN,\n", 20)+"0],\n\"version\": \"1\""+strings.Repeat("\n", 50)+"}"),
			`recording.json:22: field "version": a JSON string stands where none is expected`},
		{"an array", folderOf("recording.json", "[]"), `recording.json:1: a JSON array stands where none is expected`},
		{"no format", folderOf("recording.json", "{}"), `recording.json: "format" is "", not "ordercheck-recording": this is no recording`},
		{"another format", folderOf("recording.json", `{"format": "tensorboard", "version": 1}`),
			`recording.json: "format" is "tensorboard", not "ordercheck-recording": this is no recording`},
		{"no version", folderOf("recording.json", `{"format": "ordercheck-recording"}`),
			`recording.json: "version" is 0; this program reads version 1: record again with a matching recorder`},
		{"another version", folderOf("recording.json", `{"format": "ordercheck-recording", "version": 2}`),
			`recording.json: "version" is 2; this program reads version 1: record again with a matching recorder`},
		{"version no number", folderOf("recording.json", "{\"format\": \"ordercheck-recording\",\n\"version\": \"1\"}"),
			`recording.json:2: field "version": a JSON string stands where none is expected`},
		{"negative world size", folderOf("recording.json", `{"format": "ordercheck-recording", "version": 1, "world_size": -1}`),
			`recording.json: "world_size" is -1; it counts ranks`},
		{"scale no number", folderOf("recording.json", `{"format": "ordercheck-recording", "version": 1, "scalers": {"0": {"init_scale": "large"}}}`),
			`recording.json: "large"` + number},

		// The order of calls.
		{"seq repeated", events(line(0, ""), line(1, ""), line(1, "")),
			`events.jsonl:3: seq 1 stands twice; the recording was written by two processes or pasted together`},
		{"seq going back", events(line(5, ""), line(6, ""), "", line(2, "")),
			`events.jsonl:4: seq goes back from 6 to 2; the order of calls is lost`},

		// Lines that are no event.
		{"no JSON", events(one, `seq=1`), `events.jsonl:2: not a JSON object: invalid character 's' looking for beginning of value`},
		{"two events a line", events(one + one), `events.jsonl:1: not a JSON object: invalid character '{' after top-level value`},
		{"an array", events(`[0]`), `events.jsonl:1: not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage`},
		{"null", events(`null`), `events.jsonl:1: the event has no "seq"`},
		{"no seq", events(`{"op": "step"}`), `events.jsonl:1: the event has no "seq"`},
		{"seq null", events(`{"seq": null, "op": "step"}`), `events.jsonl:1: the event has no "seq"`},
		{"no op", events(`{"seq": 0}`), `events.jsonl:1: the event has no "op"`},
		{"op null", events(`{"seq": 0, "op": null}`), `events.jsonl:1: the event has no "op"`},
		{"cut line that is not the last", events(`{"seq": 0, "o`, line(1, "")), `events.jsonl:1: not a JSON object: unexpected end of JSON input`},
		{"cut line that ends", events(one, `{"seq": 1, "o`), `events.jsonl:2: not a JSON object: unexpected end of JSON input`},
		{"huge line", events(one, line(1, `"text": "`+strings.Repeat("x", maxLine+1<<16)+`"`)), `events.jsonl:2: a line of more than 16 MB` + syntax},

		// Fields of another type.
		{"seq a fraction", events(`{"seq": 0.5, "op": "step"}`), `events.jsonl:1: field "seq": 0.5 is no whole number`},
		{"seq a string", events(`{"seq": "0", "op": "step"}`), `events.jsonl:1: field "seq": "0" is no whole number`},
		{"seq too large", events(`{"seq": 1e300, "op": "step"}`), `events.jsonl:1: field "seq": 1e300 is no whole number`},
		{"seq between whole numbers that can be told apart", events(`{"seq": 9007199254740994, "op": "step"}`), `events.jsonl:1: field "seq": 9007199254740994 is no whole number`},
		{"seq NaN", events(`{"seq": NaN, "op": "step"}`), `events.jsonl:1: field "seq": "NaN" is no whole number`},
		{"op a number", events(`{"seq": 0, "op": 7}`), `events.jsonl:1: field "op": 7 is no string`},
		{"scale a word", events(line(0, `"scale": "big"`)), `events.jsonl:1: field "scale": "big"` + number},
		{"scale a number as text", events(line(0, `"scale": "65536"`)), `events.jsonl:1: field "scale": "65536"` + number},
		{"scale a list", events(line(0, `"scale": [1]`)), `events.jsonl:1: field "scale": [1] is no number`},
		{"scale true", events(line(0, `"scale": true`)), `events.jsonl:1: field "scale": true is no number`},
		{"found_inf a word", events(line(0, `"found_inf": "yes"`)), `events.jsonl:1: field "found_inf": "yes" is neither true nor false`},
		{"covers a string", events(line(0, `"covers": "w"`)), `events.jsonl:1: field "covers": a list of parameter names is expected`},
		{"covers of numbers", events(line(0, `"covers": [0]`)), `events.jsonl:1: field "covers": a list of parameter names is expected`},
		{"lr a word", events(line(0, `"lr": "warmup"`)), `events.jsonl:1: field "lr": a number, or a list with one a group, is expected`},
		{"lr of words", events(line(0, `"lr": [0.1, "b"]`)), `events.jsonl:1: field "lr": a number, or a list with one a group, is expected`},
		{"lr of nothing", events(line(0, `"lr": [null]`)), `events.jsonl:1: field "lr": a number, or a list with one a group, is expected`},
		{"optimizer true", events(line(0, `"optimizer": true`)), `events.jsonl:1: field "optimizer": true is no string`},
		{"summary a list", events(line(0, `"after_summary": []`)),
			`events.jsonl:1: field "after_summary": {"tensor": {"n", "nonfinite", "max", "sumsq", "sample": [[index, value], …]}} is expected`},
		{"summary of words", events(line(0, `"before_summary": {"grad/w": {"max": "large"}}`)),
			`events.jsonl:1: field "before_summary": {"tensor": {"n", "nonfinite", "max", "sumsq", "sample": [[index, value], …]}} is expected`},

		// Snapshots.
		{"snapshot above", events(line(0, `"before": "../secret.safetensors"`)),
			`events.jsonl:1: field "before": snapshot "../secret.safetensors" leaves the recording; names are relative to it and use /`},
		{"snapshot above by a detour", events(line(0, `"after": ["tensors/a.safetensors", "tensors/../../secret"]`)),
			`events.jsonl:1: field "after": snapshot "tensors/../../secret" leaves the recording; names are relative to it and use /`},
		{"absolute snapshot", events(line(0, `"before": "/etc/passwd"`)),
			`events.jsonl:1: field "before": snapshot "/etc/passwd" leaves the recording; names are relative to it and use /`},
		{"the folder as snapshot", events(line(0, `"before": "."`)),
			`events.jsonl:1: field "before": snapshot "." leaves the recording; names are relative to it and use /`},
		{"snapshot a number", events(line(0, `"before": 3`)), `events.jsonl:1: field "before": a snapshot file or a list of them is expected`},
		{"snapshots numbers", events(line(0, `"after": [3]`)), `events.jsonl:1: field "after": a snapshot file or a list of them is expected`},

		// Ranks.
		{"another rank", events(line(0, `"rank": 1`)), `events.jsonl:1: rank 1 in the file of rank 0`},
		{"another rank in a later line", folderOf("recording.json", manifest, "events.rank1.jsonl", line(0, `"rank": 1`)+"\n"+line(1, `"rank": 0`)),
			`events.rank1.jsonl:2: rank 0 in the file of rank 1`},
		{"two files of one rank", folderOf("recording.json", manifest, "events.jsonl", one, "events.rank0.jsonl", one),
			`events.jsonl and events.rank0.jsonl are both of rank 0: keep one`},
		{"two empty files of one rank", folderOf("recording.json", manifest, "events.rank1.jsonl", "", "events.rank01.jsonl", ""),
			`events.rank01.jsonl and events.rank1.jsonl are both of rank 1: keep one`},
		{"a rank beyond counting", folderOf("recording.json", manifest, "events.rank99999999999999999999.jsonl", one),
			`events.rank99999999999999999999.jsonl: no rank has that number`},
		{"a folder of events", fstest.MapFS{"recording.json": {Data: []byte(manifest)}, "events.jsonl": {Mode: fs.ModeDir}},
			`events.jsonl is a folder, not a file`},
		{"a pipe of events", fstest.MapFS{"recording.json": {Data: []byte(manifest)}, "events.jsonl": {Mode: fs.ModeNamedPipe}},
			`events.jsonl is no regular file`},
		{"a pipe in place of recording.json", fstest.MapFS{"recording.json": {Mode: fs.ModeNamedPipe}}, `recording.json is no regular file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, err := ReadRecording(c.fsys)
			if err == nil {
				t.Fatalf("read, with the notes %v", run.Notes)
			}
			if got := err.Error(); got != c.want {
				t.Errorf("error\n\t%s\nwant\n\t%s", got, c.want)
			}
		})
	}
}

// Of several faults in one line the same is told each time.
func TestSeveralFaults(t *testing.T) {
	fsys := events(line(0, `"scale": [], "lr": {}, "found_inf": [], "norm": {}, "covers": 3, "via": 0`))
	for range 20 {
		_, err := ReadRecording(fsys)
		if want := `events.jsonl:1: field "covers": a list of parameter names is expected`; err == nil || err.Error() != want {
			t.Fatalf("error %v, want %s", err, want)
		}
	}
}

// Recordings that are read as far as they go: a note says what was left out.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name   string
		fsys   fstest.MapFS
		events int
		want   string
	}{
		{"sound", events(line(0, ""), line(1, "")), 2, ""},
		{"no events at all", folderOf("recording.json", manifest), 0, ""},
		{"empty lines", events("", line(0, ""), " \t", line(1, "")+"\r", ""), 2, ""},
		{"no end of line", folderOf("recording.json", manifest, "events.jsonl", line(0, "")), 1, ""},
		{"one call missing", events(line(0, ""), line(2, "")), 2, "events.jsonl:2: calls 1 to 1 are missing\n"},
		{"calls missing twice", events(line(7, ""), line(10, ""), line(20, "")), 3,
			"events.jsonl:2: calls 8 to 9 are missing\nevents.jsonl:3: calls 11 to 19 are missing\n"},
		{"last line cut", folderOf("recording.json", manifest, "events.jsonl", line(0, "")+"\n"+`{"seq": 1, "op": "st`), 1,
			"events.jsonl:2: the last line was cut short and is left out\n"},
		{"last line cut in the middle of its name", folderOf("recording.json", manifest, "events.jsonl", line(0, "")+"\n"+`{"seq"`), 1,
			"events.jsonl:2: the last line was cut short and is left out\n"},
		{"last line full of zeros", folderOf("recording.json", manifest, "events.jsonl", line(0, "")+"\n\x00\x00\x00\x00"), 1,
			"events.jsonl:2: the last line was cut short and is left out\n"},
		{"nothing but a cut line", folderOf("recording.json", manifest, "events.jsonl", `{`), 0,
			"events.jsonl:1: the last line was cut short and is left out\n"},
		{"fewer ranks than processes", folderOf("recording.json", `{"format": "ordercheck-recording", "version": 1, "world_size": 4}`,
			"events.rank0.jsonl", line(0, ""), "events.rank2.jsonl", line(0, "")), 2,
			"recording.json: 2 of 4 ranks were recorded; what needs the others is not decided\n"},
		{"unknown ops and fields, once each", events(
			line(0, `"zeal": 1`), line(1, `"zeal": 2, "aura": null`),
			`{"seq": 2, "op": "teleport", "zeal": 3}`, `{"seq": 3, "op": "teleport"}`, `{"seq": 4, "op": ""}`), 5,
			"events: field \"aura\" of note is not known to this version and is not used (1 times)\n" +
				"events: field \"zeal\" of note is not known to this version and is not used (2 times)\n" +
				"events: field \"zeal\" of teleport is not known to this version and is not used (1 times)\n" +
				"events: op \"\" is not known to this version and is not used (1 times)\n" +
				"events: op \"teleport\" is not known to this version and is not used (2 times)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := mustRead(t, c.fsys)
			if got := noteTexts(run.Notes); got != c.want {
				t.Errorf("notes\n%swant\n%s", got, c.want)
			}
			if run.Calls() != c.events {
				t.Errorf("%d events, want %d", run.Calls(), c.events)
			}
		})
	}
}

// A line without an end is given up after maxLine, not read into memory.
func TestEndlessLine(t *testing.T) {
	r := &endless{begin: line(0, "") + "\n" + `{"seq": 1, "op": "`}
	_, _, err := readEvents(r, "events.jsonl", 0)
	if want := "events.jsonl:2: a line of more than 16 MB; one event a line is expected"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if r.read > maxLine+1<<20 {
		t.Errorf("%d bytes were read of it", r.read)
	}
}

// A link that leaves the folder is not followed, wherever it stands.
func TestLinksThatLeave(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"recording.json", "events.jsonl", "tensors/a.safetensors"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{
				"recording.json": manifest, "events.jsonl": line(0, `"before": "tensors/a.safetensors"`), "tensors/a.safetensors": tensorFile(t),
			} {
				path := filepath.Join(dir, filepath.FromSlash(file))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if file == name {
					if err := os.Symlink(secret, path); err != nil {
						t.Skipf("no links here: %v", err)
					}
				} else if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			run, err := ReadRecording(root.FS())
			if err == nil {
				_, err = run.Open("tensors/a.safetensors")
			}
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "escapes") {
				t.Errorf("the link was followed: error %v", err)
			}
		})
	}
}
