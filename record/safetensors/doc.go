// Package safetensors reads and writes the safetensors format, in which
// snapshots of gradients, parameters and optimizer state are kept:
//
//	8 bytes   N, little-endian
//	N bytes   JSON: {"NAME": {"dtype": "F16", "shape": [32, 8], "data_offsets": [0, 512]}, …,
//	                 "__metadata__": {"KEY": "VALUE", …}}, then spaces
//	the rest  the tensors' elements, row-major, little-endian; data_offsets count from here
//
// The format is defined at https://github.com/huggingface/safetensors; what the
// text there leaves open is decided as in version 0.8.0 of that library, except
// that this package is stricter where a file contradicts itself.
//
// # Reading
//
// [Open] reads the header and nothing else; [Tensor.ReadAt] decodes any piece
// of a tensor as float64 and [Tensor.Bytes] gives its bytes, both from the file
// at the time of the call. A tensor of any size can so be scanned in a buffer
// of any size.
//
//	f, err := safetensors.Open(file, size)
//	…
//	t, ok := f.Tensor("grad/0.weight")
//	…
//	buf := make([]float64, 4096)
//	for off := 0; off < t.Len(); {
//		n, err := t.ReadAt(buf, off)
//		if err != nil && err != io.EOF {
//			return err
//		}
//		scan(buf[:n])
//		off += n
//	}
//
// # Trust
//
// A file is hostile until its header has been checked as a whole: Open refuses
// it unless every tensor's bytes lie inside the file and are as many as dtype
// and shape need, and the tensors together cover the data without overlap, gap
// or rest. No names or keys are given twice. What is allocated is in proportion to
// bytes that were read, never to a number that the file claims. A dtype that
// this package does not know is no error until ReadAt is asked to decode it.
//
// Errors say what is wrong, where (a byte of the file, a tensor's name) and
// what can be done about it.
package safetensors
