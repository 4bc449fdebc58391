// Package evidence says what the numbers of a run tell: what happened between
// two snapshots, which changes no call explains, which gradient an optimizer
// consumed, which parameters it owns, and in which unit a threshold is.
//
// It reads snapshots tensor by tensor through a Book and turns each rank's
// calls into a Story: the calls, with the operations that the numbers add.
package evidence
