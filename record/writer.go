package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"ordercheck/record/safetensors"
)

// Folder takes files, each whole: record/folder puts them on disk.
type Folder interface {
	Write(name string, data []byte) error
}

// Writer writes a recording of format version 1.
type Writer struct {
	to     Folder
	put    map[string]bool       // snapshots that are there
	events map[int]*bytes.Buffer // by rank
	seq    map[int]int
	world  int
}

// Fields are those of one event, by the format's names. seq and rank are added.
type Fields map[string]any

// NewWriter begins a recording with its recording.json.
func NewWriter(to Folder, m Manifest) (*Writer, error) {
	m.Format, m.Version = formatName, formatVersion
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	w := &Writer{to: to, put: map[string]bool{}, events: map[int]*bytes.Buffer{}, seq: map[int]int{}, world: max(m.WorldSize, 1)}
	return w, to.Write(manifestName, append(data, '\n'))
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
	if w.put[name] {
		return name, nil
	}
	w.put[name] = true
	return name, w.to.Write(name, b.Bytes())
}

// Close writes the events files.
func (w *Writer) Close() error {
	for _, rank := range slices.Sorted(maps.Keys(w.events)) {
		name := "events.jsonl"
		if w.world > 1 {
			name = fmt.Sprintf("events.rank%d.jsonl", rank)
		}
		if err := w.to.Write(name, w.events[rank].Bytes()); err != nil {
			return err
		}
	}
	return nil
}
