// Package conformance compares internal/simulate with internal/mongostore.
// What the simulator proves of its world in memory is true of MongoDB as far as both do
// the same.
//
// Its tests draw sequences of the protocol's operations, some as executions ask for them
// and some as none would.
// The World and a real server perform each of them, and after each one the answers and
// the documents must be equal.
// In between, accounts are closed, opened, frozen, deleted, put back, paid into and
// damaged.
// A sequence that shows a difference is shrunk to a short one.
//
// What the World leaves out is added in model_test.go: how amounts are stored, balances
// that are damaged, the age of a transfer, and the fields of a transfer on which no
// decision rests.
//
// Several operations at once are sent as mongostore's commands.
// Both the World and the store merge writes of different transfers to one account into
// one update, and try them one by one if that does not match.
// commands_test.go says what the answers are if only some operations of a command
// matched.
package conformance
