package record

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// manifest is the smallest recording.json.
const manifest = `{"format": "ordercheck-recording", "version": 1}`

// folderOf makes a file system of names and contents, in turn.
func folderOf(files ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return fsys
}

// events is a recording of one process with these lines.
func events(lines ...string) fstest.MapFS {
	return folderOf("recording.json", manifest, "events.jsonl", strings.Join(lines, "\n")+"\n")
}

// line is an event with seq and more fields.
func line(seq int, fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return fmt.Sprintf(`{"seq": %d, "op": "note"%s}`, seq, fields)
}

func mustRead(t testing.TB, fsys fs.FS) *Run {
	t.Helper()
	run, err := ReadRecording(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func noteTexts(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "%s: %s\n", n.Where, n.Text)
	}
	return b.String()
}

// streamFS is a file system whose files can only be read from the beginning, as
// those of a zip archive, and whose sizes are not known before.
type streamFS struct{ fs.FS }

func (s streamFS) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if _, dir := f.(fs.ReadDirFile); err != nil || dir {
		return f, err
	}
	return stream{f}, nil
}

type stream struct{ fs.File }

func (s stream) Stat() (fs.FileInfo, error) {
	info, err := s.File.Stat()
	return unsized{info}, err
}

type unsized struct{ fs.FileInfo }

func (unsized) Size() int64 { return 0 }

// endless is a line that never ends; read counts what was taken of it.
type endless struct {
	begin string
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin[min(e.read, len(e.begin)):])
	for i := n; i < len(p); i++ {
		p[i] = 'a'
	}
	e.read += len(p)
	return len(p), nil
}

var _ io.Reader = (*endless)(nil)
