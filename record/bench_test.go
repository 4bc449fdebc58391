package record

import (
	"bytes"
	"fmt"
	"testing"
)

// go test ./record -run '^$' -bench Events
//
// 12500 attempts of a textbook loop, of which two percent have snapshots.
func BenchmarkEvents(b *testing.B) {
	var text bytes.Buffer
	seq := 0
	write := func(step int, fields string) {
		fmt.Fprintf(&text, `{"seq": %d, "rank": 0, "step": %d, "line": 40, %s`, seq, step, fields)
		if step%50 == 0 {
			fmt.Fprintf(&text, `, "before": ["tensors/g%d.safetensors"], "after": ["tensors/h%d.safetensors"]`, step, step)
		}
		text.WriteString("}\n")
		seq++
	}
	for step := range 12500 {
		write(step, `"op": "zero_grad", "optimizer": "0", "set_to_none": true`)
		write(step, `"op": "scale_loss", "scaler": "0", "scale": 65536.0, "loss": 5.929179668426514, "scaled": 388574.71875`)
		write(step, `"op": "backward", "root": 388574.71875, "factor": 65536.0, "micro": 0`)
		write(step, `"op": "unscale", "scaler": "0", "optimizer": "0", "scale": 65536.0, "found_inf": false`)
		write(step, `"op": "clip", "rule": "global_norm", "threshold": 1.0, "norm_type": 2.0, "norm": 0.8927, "n_tensors": 6, "covers": ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]`)
		write(step, `"op": "step", "via": "scaler", "scaler": "0", "optimizer": "0", "called": true, "applied": true, "found_inf": false, "lr": 0.003`)
		write(step, `"op": "update_scale", "scaler": "0", "scale": 65536.0, "previous": 65536.0, "growth_tracker": 3`)
		write(step, `"op": "log", "key": "loss", "value": 5.929179668426514`)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		events, notes, err := readEvents(bytes.NewReader(text.Bytes()), "events.jsonl", 0)
		if err != nil || len(events) != seq || len(notes) != 0 {
			b.Fatalf("%d events, %d notes, %v", len(events), len(notes), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(seq), "ns/event")
}
