// Package soak runs examples/service as three processes on one database, under faults,
// and checks every answer of the service with the driver alone.
//
//	go run ./internal/soak/cmd -for 15m
//
// Clients ask any of the processes for transfers and holds, and post them, void them or
// leave them to expire.
// They repeat a request with the same key, at any process, until they have an answer, and
// once more long after that.
// Meanwhile the processes are killed in turn, and restarted one after another as
// Kubernetes does it.
// At the start, and again later, the user of the service has no right to change accounts
// until an operator grants it.
//
// At the end all processes are stopped, and one Recover finishes what is left.
// Then each stored document is read: no marker is left, the sum is what it was, each
// balance is what the successful transfers make of it, and each answer is true.
// Audit must find nothing.
package soak
