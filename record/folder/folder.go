// Package folder puts files into a folder of the operating system, each whole:
// it is written under a temporary name in the same folder and then renamed.
package folder

import (
	"os"
	"path/filepath"
)

// Dir is a folder; it is made when the first file is put there.
type Dir string

// Write puts one file there. name is relative and uses /.
func (d Dir) Write(name string, data []byte) error {
	path := filepath.Join(string(d), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no effect once it is renamed
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
