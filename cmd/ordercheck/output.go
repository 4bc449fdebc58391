package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ordercheck/report"
)

// write prints what render makes: to the file named out, or to standard output
// if out is "" or "-". Only a terminal gets colours and its own width.
func write(out string, s streams, render func(w io.Writer, opt report.Options) error) error {
	var b bytes.Buffer
	if out != "" && out != "-" {
		if err := render(&b, report.Options{}); err != nil {
			return err
		}
		return replaceFile(out, b.Bytes())
	}
	if err := render(&b, terminalOptions(s.out)); err != nil {
		return err
	}
	if _, err := s.out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("standard output: %w", cause(err))
	}
	return nil
}

// terminalOptions are the options for text written to w.
func terminalOptions(w io.Writer) report.Options {
	f, ok := w.(*os.File)
	if !ok {
		return report.Options{}
	}
	columns, ok := terminal(f)
	if !ok {
		return report.Options{}
	}
	opt := report.Options{Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if columns > 0 && columns < 100 {
		opt.Width = columns
	}
	return opt
}

// replaceFile makes data the content of the file, wholly or not at all: it is
// written under another name in the same folder and then renamed. A link is
// followed; what is no regular file, such as /dev/null, is written to as it is.
func replaceFile(path string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("-o %s: %w", path, cause(err))
		}
	}()
	target := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		target = real
	}
	old, statErr := os.Stat(target)
	switch {
	case statErr == nil && old.IsDir():
		return errors.New("is a folder; name a file")
	case statErr == nil && !old.Mode().IsRegular():
		return os.WriteFile(target, data, 0o666)
	}

	name := filepath.Join(filepath.Dir(target), ".ordercheck-"+rand.Text()+".tmp")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(name)
		}
	}()
	_, err = f.Write(data)
	if err == nil && statErr == nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(name, target)
}

// cause strips the name of a temporary file, or of a stream, off an error.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
