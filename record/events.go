package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"

	"ordercheck/step"
)

// maxLine bounds a line of events.jsonl; a line is one call.
const maxLine = 16 << 20

// readEvents reads one events file. A last line that was cut short (the process
// died while writing it) is a note; anything else that is not an event is an error.
func readEvents(r io.Reader, file string, rank int) (events []step.Event, notes []Note, err error) {
	lines := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		line, whole, err := readLine(lines)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if line == nil {
			return events, notes, nil
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			if !whole {
				return events, append(notes, Note{fmt.Sprintf("%s:%d", file, n), "the last line was cut short and is left out"}), nil
			}
			return nil, nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		e.Recorded = step.Position{File: file, Line: n}
		if !e.rankKnown {
			e.Rank = rank
		} else if e.Rank != rank {
			return nil, nil, fmt.Errorf("%s:%d: rank %d in the file of rank %d", file, n, e.Rank, rank)
		}
		if k := len(events); k > 0 {
			switch last := events[k-1].Seq; {
			case e.Seq == last:
				return nil, nil, fmt.Errorf("%s:%d: seq %d stands twice; the recording was written by two processes or pasted together", file, n, e.Seq)
			case e.Seq < last:
				return nil, nil, fmt.Errorf("%s:%d: seq goes back from %d to %d; the order of calls is lost", file, n, last, e.Seq)
			case e.Seq > last+1:
				notes = append(notes, Note{fmt.Sprintf("%s:%d", file, n), fmt.Sprintf("calls %d to %d are missing", last+1, e.Seq-1)})
			}
		}
		events = append(events, e.Event)
	}
}

// readLine returns the next line without its end; nil at the end of the file.
// whole is false for a last line that has no end.
func readLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxLine {
				return nil, false, fmt.Errorf("a line of more than %d MB; one event a line is expected", maxLine>>20)
			}
		case errors.Is(err, io.EOF):
			if len(line) == 0 {
				return nil, false, nil
			}
			return line, false, nil
		default:
			return nil, false, err
		}
	}
}

type wireEvent struct {
	step.Event
	rankKnown bool
}

func parseEvent(line []byte) (wireEvent, error) {
	var e wireEvent
	var fields map[string]json.RawMessage
	if err := unmarshal(line, &fields); err != nil {
		return e, fmt.Errorf("not a JSON object: %w", err)
	}
	has := func(name string) bool { return len(fields[name]) > 0 && string(fields[name]) != "null" }
	for _, need := range []string{"seq", "op"} {
		if !has(need) {
			return e, fmt.Errorf("the event has no %q", need)
		}
	}
	var wrong string // the first field, by name, that cannot be read
	var why error
	for name, raw := range fields {
		read, ok := eventFields[name]
		if !ok {
			e.Unread = append(e.Unread, name)
			continue
		}
		if string(raw) == "null" {
			continue
		}
		if err := read(&e.Event, raw); err != nil && (why == nil || name < wrong) {
			wrong, why = name, err
		}
	}
	if why != nil {
		return e, fmt.Errorf("field %q: %w", wrong, why)
	}
	e.rankKnown = has("rank")
	sort.Strings(e.Unread)
	e.Kind = step.KindOf(e.Op)
	return e, nil
}

// eventFields reads the fields of events.jsonl; the names are the format's.
var eventFields = map[string]func(*step.Event, json.RawMessage) error{
	"seq":            integer(func(e *step.Event, v int) { e.Seq = v }),
	"rank":           integer(func(e *step.Event, v int) { e.Rank = v }),
	"step":           integer(func(e *step.Event, v int) { e.Attempt = step.Some(v) }),
	"micro":          integer(func(e *step.Event, v int) { e.Micro = step.Some(v) }),
	"line":           integer(func(e *step.Event, v int) { e.Line = v }),
	"growth_tracker": integer(func(e *step.Event, v int) { e.GrowthTracker = step.Some(v) }),
	"n_tensors":      integer(func(e *step.Event, v int) { e.NTensors = step.Some(v) }),

	"op":        text(func(e *step.Event, v string) { e.Op = v }),
	"file":      text(func(e *step.Event, v string) { e.File = v }),
	"scaler":    name(func(e *step.Event, v string) { e.Scaler = v }),
	"optimizer": name(func(e *step.Event, v string) { e.Optimizer = v }),
	"via":       text(func(e *step.Event, v string) { e.Via = v }),
	"rule":      text(func(e *step.Event, v string) { e.Rule = v }),
	"what":      text(func(e *step.Event, v string) { e.What = v }),
	"kind":      text(func(e *step.Event, v string) { e.Mode = v }),
	"inside":    text(func(e *step.Event, v string) { e.Inside = v }),
	"during":    text(func(e *step.Event, v string) { e.During = v }),
	"type":      text(func(e *step.Event, v string) { e.ErrorType = v }),
	"text":      text(func(e *step.Event, v string) { e.Text = v }),
	"key":       text(func(e *step.Event, v string) { e.Key = v }),

	"scale":      real(func(e *step.Event, v float64) { e.Scale = step.Some(v) }),
	"previous":   real(func(e *step.Event, v float64) { e.Previous = step.Some(v) }),
	"loss":       real(func(e *step.Event, v float64) { e.Loss = step.Some(v) }),
	"scaled":     real(func(e *step.Event, v float64) { e.Scaled = step.Some(v) }),
	"root":       real(func(e *step.Event, v float64) { e.Root = step.Some(v) }),
	"factor":     real(func(e *step.Event, v float64) { e.Factor = step.Some(v) }),
	"norm":       real(func(e *step.Event, v float64) { e.Norm = step.Some(v) }),
	"norm_type":  real(func(e *step.Event, v float64) { e.NormType = step.Some(v) }),
	"threshold":  real(func(e *step.Event, v float64) { e.Threshold = step.Some(v) }),
	"grad_scale": real(func(e *step.Event, v float64) { e.GradScale = step.Some(v) }),
	"value":      realOrLeft(func(e *step.Event, v float64) { e.Value = step.Some(v) }),

	"enabled":     boolean(func(e *step.Event, v bool) { e.Enabled = step.Some(v) }),
	"found_inf":   boolean(func(e *step.Event, v bool) { e.FoundInf = step.Some(v) }),
	"called":      boolean(func(e *step.Event, v bool) { e.Called = step.Some(v) }),
	"applied":     boolean(func(e *step.Event, v bool) { e.Applied = step.Some(v) }),
	"set_to_none": boolean(func(e *step.Event, v bool) { e.SetToNone = step.Some(v) }),
	"implicit":    boolean(func(e *step.Event, v bool) { e.Implicit = v }),
	"fused":       boolean(func(e *step.Event, v bool) { e.Fused = v }),
	"norm_given":  boolean(func(e *step.Event, v bool) { e.NormGiven = v }),
	"given":       boolean(func(e *step.Event, v bool) { e.GivenNew = v }),

	"covers": func(e *step.Event, raw json.RawMessage) error {
		var v []string
		if err := json.Unmarshal(raw, &v); err != nil {
			return errors.New("a list of parameter names is expected")
		}
		e.Covers = step.Some(v)
		return nil
	},
	"lr": func(e *step.Event, raw json.RawMessage) error {
		var one Number
		if json.Unmarshal(raw, &one) == nil {
			e.LR = []float64{float64(one)}
			return nil
		}
		var many []Number
		if err := json.Unmarshal(raw, &many); err != nil {
			return errors.New("a number, or a list with one a group, is expected")
		}
		for _, v := range many {
			e.LR = append(e.LR, float64(v))
		}
		return nil
	},
	// For what the kind of a grad_op or reduction multiplies, and for the loop's
	// bookkeeping, the fields below are known and not used yet.
	"count": keep, "batch": keep, "numel": keep,

	"before":         snapshotFiles(func(e *step.Event) *step.Snapshot { return &e.Before }),
	"after":          snapshotFiles(func(e *step.Event) *step.Snapshot { return &e.After }),
	"before_summary": snapshotSummary(func(e *step.Event) *step.Snapshot { return &e.Before }),
	"after_summary":  snapshotSummary(func(e *step.Event) *step.Snapshot { return &e.After }),
}

func keep(*step.Event, json.RawMessage) error { return nil }

func integer(set func(*step.Event, int)) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var v float64
		if err := json.Unmarshal(raw, &v); err != nil || v != float64(int64(v)) || v < -1<<53 || v > 1<<53 {
			return fmt.Errorf("%.40s is no whole number", raw)
		}
		set(e, int(v))
		return nil
	}
}

func real(set func(*step.Event, float64)) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var v Number
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		set(e, float64(v))
		return nil
	}
}

// realOrLeft passes over what is no number: a log line may hold any value.
func realOrLeft(set func(*step.Event, float64)) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var v Number
		if json.Unmarshal(raw, &v) == nil {
			set(e, float64(v))
		}
		return nil
	}
}

// boolean also reads 0 and 1, and a number that stands for a flag tensor.
func boolean(set func(*step.Event, bool)) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var v bool
		if json.Unmarshal(raw, &v) == nil {
			set(e, v)
			return nil
		}
		var n Number
		if json.Unmarshal(raw, &n) == nil {
			set(e, n != 0)
			return nil
		}
		return fmt.Errorf("%.40s is neither true nor false", raw)
	}
}

func text(set func(*step.Event, string)) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var v string
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("%.40s is no string", raw)
		}
		set(e, v)
		return nil
	}
}

// name reads an id: a string, or a number that stands for one.
func name(set func(*step.Event, string)) func(*step.Event, json.RawMessage) error {
	asText := text(set)
	return func(e *step.Event, raw json.RawMessage) error {
		var n json.Number
		if len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &n) == nil {
			set(e, n.String())
			return nil
		}
		return asText(e, raw)
	}
}

func snapshotFiles(of func(*step.Event) *step.Snapshot) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var files []string
		if len(raw) > 0 && raw[0] == '"' {
			var one string
			if err := json.Unmarshal(raw, &one); err != nil {
				return err
			}
			files = []string{one}
		} else if err := json.Unmarshal(raw, &files); err != nil {
			return errors.New("a snapshot file or a list of them is expected")
		}
		for _, f := range files {
			if !fs.ValidPath(f) || f == "." {
				return fmt.Errorf("snapshot %q leaves the recording; names are relative to it and use /", f)
			}
		}
		s := of(e)
		s.Looked, s.Files = true, files
		return nil
	}
}

func snapshotSummary(of func(*step.Event) *step.Snapshot) func(*step.Event, json.RawMessage) error {
	return func(e *step.Event, raw json.RawMessage) error {
		var wire map[string]struct {
			N         int         `json:"n"`
			NonFinite int         `json:"nonfinite"`
			Max       Number      `json:"max"`
			SumSq     Number      `json:"sumsq"`
			Sample    [][2]Number `json:"sample"`
		}
		if err := json.Unmarshal(raw, &wire); err != nil {
			return errors.New(`{"tensor": {"n", "nonfinite", "max", "sumsq", "sample": [[index, value], …]}} is expected`)
		}
		s := of(e)
		s.Looked, s.Summary = true, make(map[string]step.Summary, len(wire))
		for tensor, w := range wire {
			sum := step.Summary{N: w.N, NonFinite: w.NonFinite, Max: float64(w.Max), SumSq: float64(w.SumSq)}
			for _, p := range w.Sample {
				sum.Sample = append(sum.Sample, step.Sample{Index: int(p[0]), Value: float64(p[1])})
			}
			s.Summary[tensor] = sum
		}
		return nil
	}
}
