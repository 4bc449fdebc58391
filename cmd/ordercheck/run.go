package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ordercheck/check"
	"ordercheck/record"
)

// run opens each path as one run and checks them all. What could be read is
// reported even where an error names something that could not.
func run(paths []string, opt check.Options) (*check.Report, error) {
	var sources []check.Source
	var failed []error
	for i := 0; i < len(paths); {
		src, used, err := open(paths[i:])
		if err != nil {
			failed = append(failed, err)
		} else {
			sources = append(sources, src)
		}
		i += used
	}
	if len(sources) == 0 {
		return nil, errors.Join(failed...)
	}
	return check.Check(sources, opt), errors.Join(failed...)
}

// open opens the run that the first of paths names, and says how many of them
// it took: tensor files named one after another are one run.
func open(paths []string) (src check.Source, used int, err error) {
	path := paths[0]
	src.Path = path
	if path == "-" {
		src.Run, err = record.ReadEvents(os.Stdin, "standard input", nil)
		return src, 1, err
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return src, 1, cannotOpen(path, err)
	case st.IsDir():
		src.Run, err = openFolder(path)
	case record.LooksLikeTensors(named{}, path):
		used = 1
		for used < len(paths) && isFile(paths[used]) && record.LooksLikeTensors(named{}, paths[used]) {
			used++
		}
		if src.Run, err = record.ReadTensors(named{}, paths[:used], true, true); used > 1 {
			src.Path = fmt.Sprintf("%s … %s", path, paths[used-1])
		}
		return src, used, err
	case record.LooksLikeEvents(named{}, path):
		src.Run, err = openEvents(path)
	default:
		err = errors.New("neither a recording, nor a tensor file (.safetensors), nor a file of events")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return src, 1, err
}

// openEvents opens a file of events, with the recording that it is a part of if
// it stands in one. The same goes for recording.json.
func openEvents(path string) (*record.Run, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if record.IsRecording(root.FS()) {
		return record.ReadRecording(root.FS())
	}
	f, err := os.Open(path) // regular: it has been looked into
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return record.ReadEvents(f, filepath.Base(path), root.FS())
}

func openFolder(path string) (*record.Run, error) {
	root, err := os.OpenRoot(path) // links that leave the folder are not followed
	if err != nil {
		return nil, err
	}
	fsys := root.FS()
	if record.IsRecording(fsys) {
		return record.ReadRecording(fsys)
	}
	if inside := record.FindRecordings(fsys); len(inside) > 0 {
		return nil, fmt.Errorf("this folder is no recording, but there is one in %s: name that", filepath.Join(path, filepath.FromSlash(inside[0])))
	}
	names, err := record.TensorFiles(fsys)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no recording.json and no tensor files in this folder: name a recording (made by recorder/record.py) or .safetensors files")
	}
	return record.ReadTensors(fsys, names, false, false)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func cannotOpen(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no such file or folder", path)
	}
	return err
}

// named is the file system of the files named on the command line.
type named struct{}

func (named) Open(name string) (fs.File, error)     { return os.Open(name) }
func (named) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
