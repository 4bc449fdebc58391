package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ordercheck/report"
)

func hello(w io.Writer, _ report.Options) error {
	_, err := io.WriteString(w, "hello\n")
	return err
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.txt")
	link := filepath.Join(dir, "link.txt")
	if err := os.WriteFile(file, []byte("a long old report\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("report.txt", link); err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	if err := write(link, streams{&out, io.Discard}, hello); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "hello\n" {
		t.Errorf("the file holds %q", got)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is now %o", info.Mode().Perm())
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if out.Len() > 0 {
		t.Errorf("standard output got %q", out.String())
	}
	onlyFiles(t, dir, "link.txt report.txt")
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.txt")
	if err := os.WriteFile(file, []byte("old\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	broken := func(w io.Writer, _ report.Options) error {
		io.WriteString(w, "half")
		return errors.New("broken")
	}
	if err := write(file, streams{io.Discard, io.Discard}, broken); err == nil || err.Error() != "broken" {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "old\n" {
		t.Errorf("the file holds %q", got)
	}
	for _, c := range []struct{ path, want string }{
		{dir, "-o " + dir + ": is a folder; name a file"},
		{filepath.Join(dir, "no", "x"), "-o " + filepath.Join(dir, "no", "x") + ": no such file or directory"},
		{filepath.Join(file, "x"), "-o " + filepath.Join(file, "x") + ": not a directory"},
	} {
		if err := write(c.path, streams{io.Discard, io.Discard}, hello); err == nil || err.Error() != c.want {
			t.Errorf("-o %s: error %v, want %s", c.path, err, c.want)
		}
	}
	onlyFiles(t, dir, "report.txt")
}

// TestWriteDevice: what is no regular file stays what it is.
func TestWriteDevice(t *testing.T) {
	before, err := os.Stat(os.DevNull)
	if err != nil || before.Mode().IsRegular() {
		t.Skip("no null device in the file system")
	}
	if err := write(os.DevNull, streams{io.Discard, io.Discard}, hello); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(os.DevNull)
	if err != nil || after.Mode() != before.Mode() {
		t.Fatalf("%s is now %v, %v", os.DevNull, after, err)
	}
}

// TestNoTerminal: neither a file nor the null device is a terminal.
func TestNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range []io.Writer{f, new(bytes.Buffer)} {
		if opt := terminalOptions(w); opt.Color || opt.Width != 0 {
			t.Errorf("options %+v for %T", opt, w)
		}
	}
}

func onlyFiles(t *testing.T, dir, want string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the folder holds %s, want %s", got, want)
	}
}
