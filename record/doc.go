// Package record reads what people have of a training run into events and
// snapshots: recordings of format version 1 and safetensors files, each over an
// fs.FS and tensor by tensor. It also writes recordings.
//
// Readers judge nothing. What they could not read inside a run becomes a note;
// what makes the run unreadable is an error that says where and what to do.
package record
