// Package check decides the rules of mixed-precision training on a recorded run.
//
// In FP16 training the loss is multiplied by a scale, and every gradient carries
// that scale as a unit until something divides it out. A rule is a sentence about
// those units, about finiteness, about the scale or about who takes part in a step.
// It stands in a file of its own as one [Rule] literal, documentation and decision
// together; registry.go is generated from these files.
//
// What the engine promises:
//
//   - Every rule ends a run with one [Status]. A fault was found, or pass: the rule
//     was decided and holds. Without the evidence to decide it is no_data, and the
//     report says what is needed; where the rule has nothing to say (no scale, one
//     rank) it is not_applicable, and the report says why; a rule that the user
//     left out is off. Missing evidence is never a pass.
//   - A finding has a [Severity]: error means that the run was not the training that
//     was asked for, warning that it may not have been, note is advice.
//   - A finding has a [Certainty]: proven by numbers that show that the step was
//     changed, observed in the sequence of calls, or suspected from a pattern.
//     Nothing that is only suspected is an error. Where calls and numbers
//     contradict each other the numbers win, and OC0001 says so.
//   - One mistake is told once. A finding that follows from another one names that
//     rule in Because ([Rule].Explains says which follow from which); what remains
//     are the roots, and only they are shown whole.
//   - A false alarm is worse than a miss. Right loops that no textbook shows are
//     accepted, rounding is part of every comparison, and a rule in doubt asks for
//     data instead of guessing.
//
// In the loops of the rules model, loader and loss_fn stand for the reader's own;
// what else they use they make themselves.
package check

//go:generate go run generate.go
