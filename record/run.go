package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"ordercheck/record/safetensors"
	"ordercheck/step"
)

// Run is one run of a training loop, as far as something is left of it.
type Run struct {
	Kind     string // Recording, Events or Tensors
	Manifest Manifest
	Ranks    []Rank // by rank
	// Ordered is false for tensor files whose order is not known.
	Ordered bool
	Notes   []Note

	fsys fs.FS
}

// The kinds of runs.
const (
	Recording = "recording" // format version 1
	Events    = "events"    // a lone events file
	Tensors   = "tensors"   // tensor files without calls
)

// Rank is what one process did, in order.
type Rank struct {
	ID     int
	Events []step.Event

	file string
}

// Note is something worth knowing about a run: what was left out and why.
type Note struct {
	Where string // file, or file:line
	Text  string
}

// Calls counts the events of all ranks.
func (r *Run) Calls() int {
	n := 0
	for _, rank := range r.Ranks {
		n += len(rank.Events)
	}
	return n
}

// OpTensors is the op of the events that stand for tensor files without calls:
// somebody looked (the event's After), and that is all.
const OpTensors = "tensors"

var eventsName = regexp.MustCompile(`^events(?:\.rank(\d+))?\.jsonl$`)

// IsRecording reports whether fsys is a recording of this format.
func IsRecording(fsys fs.FS) bool {
	_, err := fs.Stat(fsys, manifestName)
	return err == nil
}

// ReadRecording reads a recording of format version 1. The tensors stay on disk.
func ReadRecording(fsys fs.FS) (*Run, error) {
	data, err := readWhole(fsys, manifestName, 64<<20)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, err
	}
	run := &Run{Kind: Recording, Manifest: m, Ordered: true, fsys: fsys}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		match := eventsName.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		rank := 0
		if match[1] != "" {
			if rank, err = strconv.Atoi(match[1]); err != nil {
				return nil, fmt.Errorf("%s: no rank has that number", entry.Name())
			}
		}
		if err := run.addRank(entry.Name(), rank); err != nil {
			return nil, err
		}
	}
	sort.Slice(run.Ranks, func(i, j int) bool { return run.Ranks[i].ID < run.Ranks[j].ID })
	for i := 1; i < len(run.Ranks); i++ {
		if run.Ranks[i].ID == run.Ranks[i-1].ID {
			return nil, fmt.Errorf("%s and %s are both of rank %d: keep one", run.Ranks[i-1].file, run.Ranks[i].file, run.Ranks[i].ID)
		}
	}
	if n := len(run.Ranks); n < m.WorldSize {
		run.note(manifestName, fmt.Sprintf("%d of %d ranks were recorded; what needs the others is not decided", n, m.WorldSize))
	}
	run.noteUnknown()
	return run, nil
}

// ReadEvents reads a lone events file, without recording.json. fsys holds its
// snapshots; nil if there is no place to look for them.
func ReadEvents(r io.Reader, name string, fsys fs.FS) (*Run, error) {
	run := &Run{Kind: Events, Ordered: true, fsys: fsys}
	if err := run.addEvents(r, name, 0); err != nil {
		return nil, err
	}
	run.note(name, "an events file alone: no recording.json says which parameters belong to which optimizer")
	run.noteUnknown()
	return run, nil
}

// ReadTensors takes tensor files as one run. ordered says that names stand in
// the order in which the files were made. A file that cannot be read is an
// error if it was asked for by name, else a note.
func ReadTensors(fsys fs.FS, names []string, ordered, asked bool) (*Run, error) {
	run := &Run{Kind: Tensors, Ordered: ordered, fsys: fsys}
	var events []step.Event
	for _, name := range names {
		f, err := run.Open(name)
		if err != nil {
			if asked {
				return nil, err
			}
			run.note(name, err.Error())
			continue
		}
		f.Close()
		events = append(events, step.Event{
			Seq: len(events), Kind: step.Note, Op: OpTensors,
			Recorded: step.Position{File: name},
			After:    step.Snapshot{Looked: true, Files: []string{name}},
		})
	}
	run.Ranks = []Rank{{Events: events}}
	return run, nil
}

func (r *Run) addRank(name string, rank int) error {
	f, err := openRegular(r.fsys, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.addEvents(f, name, rank)
}

func (r *Run) addEvents(from io.Reader, name string, rank int) error {
	events, notes, err := readEvents(from, name, rank)
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, notes...)
	r.Ranks = append(r.Ranks, Rank{ID: rank, Events: events, file: name})
	return nil
}

func (r *Run) note(where, text string) { r.Notes = append(r.Notes, Note{where, text}) }

// noteUnknown says once for each op and field that this program does not know.
func (r *Run) noteUnknown() {
	seen := map[string]int{}
	for _, rank := range r.Ranks {
		for _, e := range rank.Events {
			if e.Kind == step.Other {
				seen[fmt.Sprintf("op %q", e.Op)]++
			}
			for _, field := range e.Unread {
				seen[fmt.Sprintf("field %q of %s", field, e.Op)]++
			}
		}
	}
	var keys []string
	for k := range seen {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		r.note("events", fmt.Sprintf("%s is not known to this version and is not used (%d times)", k, seen[k]))
	}
}

// Snapshot is an open file of tensors.
type Snapshot struct {
	*safetensors.File
	io.Closer
}

// maxBuffered bounds what is read into memory from a file system whose files
// have no ReadAt.
const maxBuffered = 1 << 30

// Open opens a snapshot that an event names.
func (r *Run) Open(name string) (*Snapshot, error) {
	if r.fsys == nil {
		return nil, errors.New("there is no folder to look for it in")
	}
	f, err := openRegular(r.fsys, name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	at, ok := f.(io.ReaderAt)
	size := st.Size()
	if !ok {
		data, err := io.ReadAll(io.LimitReader(f, maxBuffered+1))
		if err == nil && len(data) > maxBuffered {
			err = fmt.Errorf("larger than %d bytes, and it cannot be read in parts", maxBuffered)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at, size = strings.NewReader(string(data)), int64(len(data))
	}
	file, err := safetensors.Open(at, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Snapshot{file, f}, nil
}

// FindRecordings lists the folders below fsys that hold a recording, three levels down at most.
func FindRecordings(fsys fs.FS) (folders []string) {
	_ = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil, d.IsDir() && strings.Count(name, "/") >= 3:
			return fs.SkipDir
		case d.Name() == manifestName:
			folders = append(folders, path.Dir(name))
		}
		return nil
	})
	return folders
}

// TensorFiles lists the files under fsys that hold tensors, by what is in them.
func TensorFiles(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.Count(name, "/") >= 3:
			return fs.SkipDir
		case d.Type().IsRegular() && LooksLikeTensors(fsys, name):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// LooksLikeTensors reports whether a file begins as a safetensors file does: a
// length, then a JSON object.
func LooksLikeTensors(fsys fs.FS, name string) bool {
	head := firstBytes(fsys, name, 9)
	return len(head) == 9 && head[8] == '{' && head[7] == 0 && head[6] == 0
}

// LooksLikeEvents reports whether a file begins with a JSON object.
func LooksLikeEvents(fsys fs.FS, name string) bool {
	head := strings.TrimLeft(string(firstBytes(fsys, name, 512)), " \t\r\n")
	return strings.HasPrefix(head, "{")
}

// openRegular opens a file that has an end: a pipe would be waited for without one.
func openRegular(fsys fs.FS, name string) (fs.File, error) {
	st, err := fs.Stat(fsys, name)
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, fmt.Errorf("%s is a folder, not a file", name)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return fsys.Open(name)
}

func firstBytes(fsys fs.FS, name string, n int) []byte {
	f, err := openRegular(fsys, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, n)
	got, _ := io.ReadFull(f, head)
	return head[:got]
}

func readWhole(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(name), err)
	}
	if int64(len(data)) > limit {
		return nil, errors.New(name + " is implausibly large")
	}
	return data, nil
}
