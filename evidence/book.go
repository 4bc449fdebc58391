package evidence

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"ordercheck/record"
	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// Book reads the snapshots of a run, each tensor pair once.
type Book struct {
	Notes []record.Note // snapshots that could not be used

	run     *record.Run
	open    map[string]*record.Snapshot
	recent  []string // names of open files, oldest first
	index   map[string][]string
	bad     map[string]bool
	stats   map[Ref]Stats
	changes map[[2]Ref]Change
}

// NewBook returns the book of a run.
func NewBook(run *record.Run) *Book {
	return &Book{
		run: run, open: map[string]*record.Snapshot{}, index: map[string][]string{}, bad: map[string]bool{},
		stats: map[Ref]Stats{}, changes: map[[2]Ref]Change{},
	}
}

// Ref is one tensor of one snapshot.
type Ref struct {
	file, tensor string
	summary      *step.Summary // in place of file
}

// Content is what a snapshot holds of one kind ("grad", "param", "exp_avg", …), by parameter.
type Content map[string]Ref

// maxOpen bounds the snapshot files held open.
const maxOpen = 32

// Close closes all files.
func (b *Book) Close() {
	for name, f := range b.open {
		f.Close()
		delete(b.open, name)
	}
	b.recent = nil
}

func (b *Book) file(name string) (*record.Snapshot, error) {
	if f := b.open[name]; f != nil {
		i := slices.Index(b.recent, name)
		b.recent = append(slices.Delete(b.recent, i, i+1), name)
		return f, nil
	}
	f, err := b.run.Open(name)
	if err != nil {
		return nil, err
	}
	if len(b.recent) >= maxOpen {
		b.open[b.recent[0]].Close()
		delete(b.open, b.recent[0])
		b.recent = b.recent[1:]
	}
	b.open[name] = f
	b.recent = append(b.recent, name)
	return f, nil
}

// names lists the tensors of a snapshot; nil, with a note, if it cannot be read.
func (b *Book) names(file string) []string {
	if names, ok := b.index[file]; ok {
		return names
	}
	var names []string
	f, err := b.file(file)
	if err == nil {
		names = f.Names()
	} else {
		b.spoil(file, err)
	}
	b.index[file] = names
	return names
}

func (b *Book) spoil(file string, err error) {
	if !b.bad[file] {
		b.bad[file] = true
		b.Notes = append(b.Notes, record.Note{Where: file, Text: fmt.Sprintf("this snapshot is not used: %v", err)})
	}
}

// Kinds are the tensor kinds that an optimizer's state may hold, beside param.
var stateKinds = []string{
	"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step", "square_avg", "grad_avg",
	"acc_delta", "sum", "exp_inf", "mu_product", "ax", "eta", "mu",
}

// Of returns what a snapshot holds of a kind. ok is false where nobody looked
// for that kind: the snapshot names only tensors of other kinds, or a file of
// it cannot be read. `[]` means that gradients were looked for and none existed.
func (b *Book) Of(s step.Snapshot, kind string) (c Content, ok bool) {
	if !s.Looked {
		return nil, false
	}
	c = Content{}
	prefix := kind + "/"
	for _, file := range s.Files {
		for _, tensor := range b.names(file) {
			if param, found := strings.CutPrefix(tensor, prefix); found {
				c[param] = Ref{file: file, tensor: tensor}
			}
		}
		if b.bad[file] {
			return nil, false
		}
	}
	for tensor, sum := range s.Summary {
		if param, found := strings.CutPrefix(tensor, prefix); found {
			if _, full := c[param]; !full {
				c[param] = Ref{tensor: tensor, summary: &sum}
			}
		}
	}
	if len(c) > 0 {
		return c, true
	}
	return c, kind == "grad" && !s.Named()
}

// State returns all optimizer state of a snapshot, keyed "kind/parameter".
func (b *Book) State(s step.Snapshot) Content {
	out := Content{}
	for _, kind := range stateKinds {
		c, _ := b.Of(s, kind)
		for param, ref := range c {
			out[kind+"/"+param] = ref
		}
	}
	return out
}

// Kinds lists the kinds of tensors in a snapshot.
func (b *Book) Kinds(s step.Snapshot) []string {
	seen := map[string]bool{}
	for _, file := range s.Files {
		for _, tensor := range b.names(file) {
			kind, _, _ := strings.Cut(tensor, "/")
			seen[kind] = true
		}
	}
	out := make([]string, 0, len(seen))
	for k := range seen {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Stats measures one tensor.
func (b *Book) Stats(r Ref) (Stats, bool) {
	if r.summary != nil {
		return StatsOf(*r.summary), true
	}
	if r.file == "" {
		return Stats{}, false // no such tensor
	}
	if s, ok := b.stats[r]; ok {
		return s, !b.bad[r.file]
	}
	t, err := b.tensor(r)
	var s Stats
	if err == nil {
		s, err = Measure(t)
	}
	if err != nil {
		b.spoil(r.file, err)
	}
	b.stats[r] = s
	return s, err == nil
}

// Change compares one tensor in two snapshots; ok is false where they cannot be
// compared: other shapes, or one of them cannot be read.
func (b *Book) Change(before, after Ref) (c Change, ok bool) {
	if before.summary != nil || after.summary != nil {
		if before.summary == nil || after.summary == nil || before.summary.N != after.summary.N {
			return Change{}, false
		}
		return CompareSummaries(*before.summary, *after.summary), true
	}
	if before.file == "" || after.file == "" {
		return Change{}, false // no such tensor
	}
	if before == after {
		s, ok := b.Stats(before)
		c := Change{Before: s, After: s, Lo: 1, Hi: 1, Format: FormatOf(b.dtype(before)), Stay: s.Max, Dot: s.SumSq, Sq: [2]float64{s.SumSq, s.SumSq}}
		if s.Max > 0 {
			c.Used = s.N - s.NonFinite
		}
		return c, ok
	}
	key := [2]Ref{before, after}
	if c, ok := b.changes[key]; ok {
		return c, c.Before.N == c.After.N && !b.bad[before.file] && !b.bad[after.file]
	}
	c, err := b.compare(before, after)
	if err != nil {
		b.spoil(after.file, err)
		c.Before.N, c.After.N = 0, -1
	}
	b.changes[key] = c
	return c, err == nil
}

func (b *Book) compare(before, after Ref) (Change, error) {
	ta, err := b.tensor(after)
	if err != nil {
		return Change{}, err
	}
	tb, err := b.tensor(before)
	if err != nil {
		return Change{}, err
	}
	fa, fb := FormatOf(string(ta.DType)), FormatOf(string(tb.DType))
	format := Format{max(fa.Eps, fb.Eps), fa.Tiny}
	c, err := Compare(tb, ta, format)
	if err != nil {
		return Change{}, fmt.Errorf("tensor %q: %w", after.tensor, err)
	}
	return c, nil
}

// tensor opens one tensor. The file stays open until others push it out.
func (b *Book) tensor(r Ref) (*safetensors.Tensor, error) {
	f, err := b.file(r.file)
	if err != nil {
		return nil, err
	}
	t, ok := f.Tensor(r.tensor)
	if !ok {
		return nil, fmt.Errorf("tensor %q is gone", r.tensor)
	}
	return t, nil
}

// Vector reads a whole tensor.
func (b *Book) Vector(r Ref) ([]float64, bool) {
	if r.summary != nil || r.file == "" {
		return nil, false
	}
	t, err := b.tensor(r)
	if err != nil {
		b.spoil(r.file, err)
		return nil, false
	}
	v := make([]float64, t.Len())
	if err := readFull(t, v, 0); err != nil {
		b.spoil(r.file, err)
		return nil, false
	}
	return v, true
}

// dtype names the storage of a tensor, "" for a summary.
func (b *Book) dtype(r Ref) string {
	if r.summary != nil {
		return ""
	}
	t, err := b.tensor(r)
	if err != nil {
		return ""
	}
	return string(t.DType)
}
