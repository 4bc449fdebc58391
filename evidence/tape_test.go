package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ordercheck/fp16"
	"ordercheck/record"
	"ordercheck/record/safetensors"
)

// tape records a loop in memory: what tests of this package tell.
type tape struct {
	t         testing.TB
	manifest  record.Manifest
	fsys      fstest.MapFS
	lines     map[int][]string // by rank
	snapshots int
}

func newTape(t testing.TB) *tape {
	return &tape{t: t, fsys: fstest.MapFS{}, lines: map[int][]string{}}
}

// tensors are those of a snapshot, by name.
type tensors map[string][]float32

// add adds tensors under more names.
func (s tensors) add(others ...tensors) tensors {
	all := maps.Clone(s)
	for _, o := range others {
		maps.Copy(all, o)
	}
	return all
}

// snapshot keeps float32 tensors and returns the name of their file.
func (r *tape) snapshot(s tensors) string {
	var entries []safetensors.Entry
	for _, name := range slices.Sorted(maps.Keys(s)) {
		entries = append(entries, safetensors.F32(name, []int{len(s[name])}, s[name]))
	}
	return r.file(entries...)
}

// half is an entry of binary16 numbers.
func half(name string, values ...float32) safetensors.Entry {
	var elems []fp16.Half
	for _, v := range values {
		elems = append(elems, fp16.HalfFromFloat32(v))
	}
	return safetensors.F16(name, []int{len(elems)}, elems)
}

func (r *tape) file(entries ...safetensors.Entry) string {
	var b bytes.Buffer
	if err := safetensors.Write(&b, entries, nil); err != nil {
		r.t.Fatal(err)
	}
	r.snapshots++
	name := fmt.Sprintf("tensors/%03d.safetensors", r.snapshots)
	r.fsys[name] = &fstest.MapFile{Data: b.Bytes()}
	return name
}

// event is one call of rank 0; its step is given unless fields holds one.
func (r *tape) event(attempt int, op string, fields record.Fields) { r.of(0, attempt, op, fields) }

func (r *tape) of(rank, attempt int, op string, fields record.Fields) {
	line := record.Fields{"seq": len(r.lines[rank]), "rank": rank, "step": attempt, "op": op}
	for k, v := range fields {
		if f, ok := v.(float64); ok {
			v = record.Number(f)
		}
		line[k] = v
	}
	data, err := json.Marshal(line)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lines[rank] = append(r.lines[rank], string(data))
}

// run reads what was recorded.
func (r *tape) run() *record.Run { return r.runFrom(r.fsys) }

// runFrom is run from a file system that stands before the tape's own.
func (r *tape) runFrom(fsys fs.FS) *record.Run {
	r.t.Helper()
	r.manifest.Format, r.manifest.Version = "ordercheck-recording", 1
	data, err := json.Marshal(r.manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	r.fsys["recording.json"] = &fstest.MapFile{Data: data}
	for rank, lines := range r.lines {
		r.fsys[fmt.Sprintf("events.rank%d.jsonl", rank)] = &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
	}
	run, err := record.ReadRecording(fsys)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// story tells what rank 0 recorded.
func (r *tape) story() *Story { return r.storyOf(r.run(), Declared{}) }

func (r *tape) storyOf(run *record.Run, declared Declared) *Story {
	book := NewBook(run)
	r.t.Cleanup(book.Close)
	return Tell(run, run.Ranks[0], book, declared)
}

// gradient is a float32 gradient that differs from step to step and tensor to
// tensor, and is no multiple of another.
func gradient(n, seed int) []float32 {
	g := make([]float32, n)
	for i := range g {
		g[i] = float32(math.Cos(float64(3*i+seed*seed)) * math.Exp2(float64((i+seed)%7-3)))
	}
	return g
}

// times is what a multiplication in float32 leaves of v.
func times(v []float32, factor float64) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = float32(float64(v[i]) * factor)
	}
	return out
}

func norm(vs ...[]float32) float64 {
	var sum float64
	for _, v := range vs {
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
	}
	return math.Sqrt(sum)
}
