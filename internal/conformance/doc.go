// Package conformance holds internal/simulate and internal/mongostore to each other: what the simulator proves of its world in memory
// is true of MongoDB as far as both do the same.
//
// Its tests draw sequences of the protocol's operations, such as executions ask for and such as none would, let the World and a real
// server perform each of them, and require equal answers and equal documents after each one. Between them accounts are closed, opened,
// deleted, put back, paid into and damaged. A sequence that tells the two apart is shrunk to a short one.
//
// What the World leaves out is added in model_test.go: how amounts are stored, balances that are damaged, the age of a transfer, and
// the fields of a transfer on which no decision rests.
//
// Several operations at once go out as mongostore's commands: writes of different transfers to one account are merged into one
// update, by the World as by the store, and tried one by one where that does not match. What a command of which only some
// matched makes of the answers is told in commands_test.go.
package conformance
