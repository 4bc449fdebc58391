package evidence

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// countingFS counts the files that are open.
type countingFS struct {
	fstest.MapFS
	open, most, opened int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	f, err := c.MapFS.Open(name)
	if err != nil || !strings.HasPrefix(name, "tensors/") {
		return f, err
	}
	c.open++
	c.opened++
	c.most = max(c.most, c.open)
	return &counted{f, c}, nil
}

type counted struct {
	fs.File
	c *countingFS
}

func (f *counted) Close() error {
	f.c.open--
	return f.File.Close()
}

func (f *counted) ReadAt(p []byte, off int64) (int, error) {
	return f.File.(interface {
		ReadAt([]byte, int64) (int, error)
	}).ReadAt(p, off)
}

func looked(files ...string) step.Snapshot { return step.Snapshot{Looked: true, Files: files} }

// A hundred snapshots are read with 32 files open, the least recently used of
// which makes room once a new one is open; all are closed in the end.
func TestBookHoldsFewFiles(t *testing.T) {
	tape := newTape(t)
	counting := &countingFS{MapFS: tape.fsys}
	var names []string
	for i := range 100 {
		names = append(names, tape.snapshot(tensors{"grad/w": {float32(i), 2}}))
	}
	book := NewBook(tape.runFrom(counting))
	ref := func(i int) Ref {
		t.Helper()
		c, ok := book.Of(looked(names[i]), "grad")
		if !ok {
			t.Fatalf("snapshot %d holds no gradients; notes %v", i, book.Notes)
		}
		return c["w"]
	}
	for i := range names {
		s, ok := book.Stats(ref(i))
		if !ok || s.N != 2 || s.SumSq != float64(i*i+4) {
			t.Errorf("snapshot %d: %+v, %v", i, s, ok)
		}
		if i > 0 {
			if c, ok := book.Change(ref(i-1), ref(i)); !ok || c.Moved != 1 || c.Before.SumSq != float64((i-1)*(i-1)+4) {
				t.Errorf("change %d: %+v, %v", i, c, ok)
			}
		}
	}
	if counting.most != maxOpen+1 || counting.open != maxOpen || counting.opened != 100 {
		t.Errorf("%d files opened, up to %d at once, %d now", counting.opened, counting.most, counting.open)
	}
	// The oldest are gone. One that is used stays, and the next oldest makes room.
	book.Vector(ref(100 - maxOpen))
	if counting.opened != 100 {
		t.Errorf("a file among the last %d was opened again", maxOpen)
	}
	book.Vector(ref(0))
	book.Vector(ref(100 - maxOpen))
	if counting.opened != 101 {
		t.Errorf("%d files opened; the one just used should have stayed", counting.opened-100)
	}
	book.Vector(ref(100 - maxOpen + 1))
	if counting.opened != 102 || counting.most != maxOpen+1 {
		t.Errorf("%d files opened, up to %d at once; the oldest should have made room", counting.opened-100, counting.most)
	}
	// What was measured is not read again.
	before := counting.opened
	for i := range names {
		book.Stats(ref(i))
	}
	if counting.opened != before {
		t.Errorf("%d files were opened for what was known", counting.opened-before)
	}
	book.Close()
	if counting.open != 0 {
		t.Errorf("%d files are open after Close", counting.open)
	}
	if v, ok := book.Vector(ref(7)); !ok || v[0] != 7 {
		t.Errorf("after Close: %v, %v", v, ok)
	}
	if len(book.Notes) != 0 {
		t.Errorf("notes %v", book.Notes)
	}
	book.Close()
}

// A snapshot that cannot be read is noted once and not used, nor is another file
// beside it in the same place; others are.
func TestBookNotesWhatItCannotRead(t *testing.T) {
	tape := newTape(t)
	good := tape.snapshot(tensors{"grad/w": {1, 2}})
	again := tape.snapshot(tensors{"grad/w": {1, 2}, "param/w": {3, 4}})
	shorter := tape.snapshot(tensors{"grad/w": {1}})
	opaque := tape.file(safetensors.Entry{Name: "grad/w", DType: "F8_E5M2", Shape: []int{2}, Data: []byte{1, 2}})
	cut := tape.snapshot(tensors{"grad/w": {1, 2}})
	tape.fsys[cut].Data = tape.fsys[cut].Data[:len(tape.fsys[cut].Data)-1]

	for _, c := range []struct {
		name string
		use  func(b *Book) bool // reports whether something was used
		note string
	}{
		{"absent", func(b *Book) bool { _, ok := b.Of(looked("tensors/none"), "grad"); return ok },
			"tensors/none: this snapshot is not used: open tensors/none: file does not exist"},
		{"cut short", func(b *Book) bool { _, ok := b.Of(looked(cut), "grad"); return ok }, cut + ": this snapshot is not used: " + cut + ": safetensors: "},
		{"absent beside a good one", func(b *Book) bool { _, ok := b.Of(looked(good, "tensors/none"), "grad"); return ok },
			"tensors/none: this snapshot is not used: "},
		{"of an unreadable type", func(b *Book) bool {
			c, _ := b.Of(looked(opaque), "grad")
			_, ok := b.Stats(c["w"])
			_, again := b.Stats(c["w"])
			_, vector := b.Vector(c["w"])
			return ok || again || vector
		}, opaque + ": this snapshot is not used: safetensors: "},
		{"of another shape", func(b *Book) bool {
			before, _ := b.Of(looked(good), "grad")
			after, _ := b.Of(looked(shorter), "grad")
			_, ok := b.Change(before["w"], after["w"])
			_, again := b.Change(before["w"], after["w"])
			return ok || again
		}, shorter + `: this snapshot is not used: tensor "grad/w": 2 elements before, 1 after`},
	} {
		t.Run(c.name, func(t *testing.T) {
			book := NewBook(tape.run())
			defer book.Close()
			for range 2 {
				if c.use(book) {
					t.Error("it was used")
				}
			}
			if len(book.Notes) != 1 || !strings.HasPrefix(book.Notes[0].Where+": "+book.Notes[0].Text, c.note) {
				t.Errorf("notes %v, want %s", book.Notes, c.note)
			}
			before, ok := book.Of(looked(good), "grad")
			after, ok2 := book.Of(looked(again), "grad")
			if ch, ok3 := book.Change(before["w"], after["w"]); !ok || !ok2 || !ok3 || !ch.Same() {
				t.Error("good snapshots are no longer used")
			}
		})
	}
}

// Once something in a file cannot be read nothing in it is used, not even what was.
func TestBookDropsWhatWasRead(t *testing.T) {
	tape := newTape(t)
	first := tape.snapshot(tensors{"grad/w": {1, 2}, "grad/v": {1, 2}})
	second := tape.snapshot(tensors{"grad/w": {3, 4}, "grad/v": {1}})
	book := NewBook(tape.run())
	defer book.Close()
	before, _ := book.Of(looked(first), "grad")
	after, _ := book.Of(looked(second), "grad")
	for _, want := range []bool{true, false} {
		_, stats := book.Stats(after["w"])
		_, forth := book.Change(before["w"], after["w"])
		_, back := book.Change(after["w"], before["w"])
		_, itself := book.Change(after["w"], after["w"])
		if stats != want || forth != want || back != want || itself != want {
			t.Errorf("statistics %v, changes %v, %v, %v, want %v", stats, forth, back, itself, want)
		}
		if _, ok := book.Change(before["v"], after["v"]); ok {
			t.Error("tensors of two shapes were compared")
		}
	}
	if s, ok := book.Stats(before["v"]); !ok || s.N != 2 {
		t.Errorf("the other file: %+v, %v", s, ok)
	}
}

// Whether somebody looked for gradients is another question than whether there were any.
func TestBookOf(t *testing.T) {
	tape := newTape(t)
	grads := tape.snapshot(tensors{"grad/w": {1}, "grad/a/b": {2}})
	state := tape.snapshot(tensors{"param/w": {1}, "exp_avg/w": {2}, "step/w": {3}, "odd": {4}})
	book := NewBook(tape.run())
	defer book.Close()
	summary := map[string]step.Summary{"grad/w": {N: 1, SumSq: 9}, "grad/v": {N: 2}, "param/w": {N: 1}}
	for _, c := range []struct {
		name, kind string
		snap       step.Snapshot
		want       string
		ok         bool
	}{
		{"nobody looked", "grad", step.Snapshot{}, "", false},
		{"no tensor had a value", "grad", step.Snapshot{Looked: true}, "", true},
		{"no tensor had a value", "param", step.Snapshot{Looked: true}, "", false},
		{"gradients", "grad", looked(grads), "a/b w", true},
		{"gradients", "param", looked(grads), "", false},
		{"state", "grad", looked(state), "", false},
		{"state", "param", looked(state), "w", true},
		{"two files", "grad", looked(state, grads), "a/b w", true},
		{"summary", "grad", step.Snapshot{Looked: true, Summary: summary}, "v w", true},
		{"summary", "exp_avg", step.Snapshot{Looked: true, Summary: summary}, "", false},
		{"file and summary", "grad", step.Snapshot{Looked: true, Files: []string{grads}, Summary: summary}, "a/b v w", true},
	} {
		got, ok := book.Of(c.snap, c.kind)
		if names := strings.Join(sortedKeys(got), " "); names != c.want || ok != c.ok {
			t.Errorf("%s, %s: %q, %v", c.name, c.kind, names, ok)
		}
	}
	if got := sortedKeys(book.State(looked(state, grads))); !slices.Equal(got, []string{"exp_avg/w", "step/w"}) {
		t.Errorf("State: %q", got)
	}
	if got := book.Kinds(looked(state, grads)); !slices.Equal(got, []string{"exp_avg", "grad", "odd", "param", "step"}) {
		t.Errorf("Kinds: %q", got)
	}
	// A tensor that was kept whole is better than its summary.
	c, _ := book.Of(step.Snapshot{Looked: true, Files: []string{grads}, Summary: summary}, "grad")
	if s, ok := book.Stats(c["w"]); !ok || s.SumSq != 1 {
		t.Errorf("grad/w: %+v, %v", s, ok)
	}
	if s, ok := book.Stats(c["v"]); !ok || s.N != 2 {
		t.Errorf("grad/v: %+v, %v", s, ok)
	}
	if s, ok := book.Stats(c["none"]); ok || s != (Stats{}) {
		t.Errorf("no such tensor: %+v, %v", s, ok)
	}
}

// Summaries are compared with summaries of the same tensor, and with nothing else.
func TestBookSummaries(t *testing.T) {
	tape := newTape(t)
	file := tape.snapshot(tensors{"grad/w": {1, 2}})
	book := NewBook(tape.run())
	defer book.Close()
	of := func(s step.Snapshot) Ref {
		c, ok := book.Of(s, "grad")
		if !ok {
			t.Fatal("no gradients")
		}
		return c["w"]
	}
	summed := func(n int, sumSq, value float64) Ref {
		return of(step.Snapshot{Looked: true, Summary: map[string]step.Summary{
			"grad/w": {N: n, SumSq: sumSq, Max: value, Sample: []step.Sample{{Index: 0, Value: value}}},
		}})
	}
	two := summed(2, 5, 2)
	if c, ok := book.Change(two, summed(2, 1.25, 1)); !ok || c.Lo != 0.5 || c.Before.SumSq != 5 {
		t.Errorf("halved: %+v, %v", c, ok)
	}
	if c, ok := book.Change(two, two); !ok || !c.Same() {
		t.Errorf("the same: %+v, %v", c, ok)
	}
	for name, other := range map[string]Ref{"another length": summed(3, 5, 2), "a whole tensor": of(looked(file)), "nothing": {}} {
		if c, ok := book.Change(two, other); ok {
			t.Errorf("with %s: %+v", name, c)
		}
		if c, ok := book.Change(other, two); ok {
			t.Errorf("%s with it: %+v", name, c)
		}
	}
	if v, ok := book.Vector(two); ok {
		t.Errorf("Vector: %v", v)
	}
	if s, ok := book.Stats(two); !ok || s.N != 2 || s.SumSq != 5 {
		t.Errorf("Stats: %+v, %v", s, ok)
	}
	if len(book.Notes) != 0 {
		t.Errorf("notes %v", book.Notes)
	}
}

// One tensor compared with itself is told without reading it twice, and as if it were.
func TestBookChangeOfItself(t *testing.T) {
	tape := newTape(t)
	values := map[string][]float32{
		"numbers": {1, -2, 3}, "zeros": {0, 0}, "empty": {},
		"odd": {float32(math.NaN()), float32(math.Inf(1)), 1}, "nothing finite": {float32(math.NaN())},
	}
	all := tensors{}
	for name, v := range values {
		all["grad/"+name] = v
	}
	one, two := tape.snapshot(all), tape.snapshot(all)
	book := NewBook(tape.run())
	defer book.Close()
	first, _ := book.Of(looked(one), "grad")
	second, _ := book.Of(looked(two), "grad")
	for name := range values {
		short, ok := book.Change(first[name], first[name])
		long, ok2 := book.Change(first[name], second[name])
		tell := func(c Change) string {
			f, ok := c.Factor()
			limit, cut := c.Cut()
			fit, cos := c.Fit()
			return fmt.Sprintf("same %v, factor %g %v, cut %g %v, fit %g %.9f, poisoned %d, hidden %d, %+v %+v %+v",
				c.Same(), f, ok, limit, cut, fit, cos, c.Poisoned, c.Hidden, c.Before, c.After, c.Format)
		}
		if !ok || !ok2 || tell(short) != tell(long) {
			t.Errorf("%s: with itself\n\t%s\nwith its equal\n\t%s", name, tell(short), tell(long))
		}
	}
}

// The format of a comparison is the coarser one before, and that of what is there after.
func TestBookFormats(t *testing.T) {
	tape := newTape(t)
	f32, f16 := tape.snapshot(tensors{"grad/w": {1, 2}}), tape.file(half("grad/w", 1, 2))
	book := NewBook(tape.run())
	defer book.Close()
	a, _ := book.Of(looked(f32), "grad")
	b, _ := book.Of(looked(f16), "grad")
	for _, c := range []struct {
		before, after Ref
		want          Format
	}{
		{a["w"], a["w"], FormatOf("F32")},
		{b["w"], b["w"], FormatOf("F16")},
		{a["w"], b["w"], FormatOf("F16")},
		{b["w"], a["w"], Format{Eps: FormatOf("F16").Eps, Tiny: FormatOf("F32").Tiny}},
	} {
		if got, ok := book.Change(c.before, c.after); !ok || got.Format != c.want {
			t.Errorf("from %s to %s: %+v, %v", book.dtype(c.before), book.dtype(c.after), got.Format, ok)
		}
	}
	if got := book.dtype(Ref{summary: &step.Summary{}}); got != "" {
		t.Errorf("a summary is stored as %s", got)
	}
}
