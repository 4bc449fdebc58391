package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"ordercheck/record/safetensors"
)

// Writer writes a recording of format version 1 into a folder. Every file
// appears whole: it is written under a temporary name and then renamed.
type Writer struct {
	dir    string
	events map[int]*bytes.Buffer // by rank
	seq    map[int]int
	world  int
}

// Fields are those of one event, by the format's names. seq and rank are added.
type Fields map[string]any

// NewWriter makes the folder and writes recording.json.
func NewWriter(dir string, m Manifest) (*Writer, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tensors"), 0o755); err != nil {
		return nil, err
	}
	m.Format, m.Version = formatName, formatVersion
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, events: map[int]*bytes.Buffer{}, seq: map[int]int{}, world: max(m.WorldSize, 1)}
	return w, writeFile(filepath.Join(dir, manifestName), append(data, '\n'))
}

// Event appends one call of a rank.
func (w *Writer) Event(rank int, fields Fields) error {
	if rank < 0 || rank >= w.world {
		return fmt.Errorf("rank %d of a recording of %d", rank, w.world)
	}
	line := Fields{}
	for k, v := range fields {
		switch f := v.(type) {
		case float64:
			v = Number(f)
		case []float64:
			numbers := make([]Number, len(f))
			for i := range f {
				numbers[i] = Number(f[i])
			}
			v = numbers
		}
		line[k] = v
	}
	line["seq"], line["rank"] = w.seq[rank], rank
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	w.seq[rank]++
	if w.events[rank] == nil {
		w.events[rank] = &bytes.Buffer{}
	}
	w.events[rank].Write(append(data, '\n'))
	return nil
}

// Snapshot writes tensors and returns the name by which events refer to them.
// The name is made of the content: equal content is one file.
func (w *Writer) Snapshot(tensors []safetensors.Entry) (string, error) {
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, nil); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	name := "tensors/" + hex.EncodeToString(sum[:8]) + ".safetensors"
	path := filepath.Join(w.dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err == nil {
		return name, nil
	}
	return name, writeFile(path, b.Bytes())
}

// Close writes the events files.
func (w *Writer) Close() error {
	for rank, b := range w.events {
		name := "events.jsonl"
		if w.world > 1 {
			name = fmt.Sprintf("events.rank%d.jsonl", rank)
		}
		if err := writeFile(filepath.Join(w.dir, name), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, data []byte) error {
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
