// Package soak runs examples/service as several processes on one database, under faults,
// and checks every answer of the service with the driver alone.
//
//	go run ./internal/soak/cmd -for 15m
//	go run ./internal/soak/cmd -for 20m -processes 2 -lasting
//
// Clients ask any of the processes for transfers, now or a moment later, and for holds,
// and post them, void them or leave them to expire.
// They repeat a request with the same key, at any process, until they have an answer, and
// once more long after that.
// Meanwhile the processes are killed in turn, and restarted one after another as
// Kubernetes does it.
// The webhook to which they send events refuses some, does not answer others, and is late
// now and then.
// An audit of the live data comes every ten seconds, and finds nothing.
// The window of each process is opened every second.
// With -lasting the first process is spared: its heap and its goroutines must be no more
// in the last quarter of the time than in the second, but for a fifth and a constant.
// At the start, and again later, the user of the service has no right to change accounts
// until an operator grants it.
//
// At the end all processes are stopped, and one Recover finishes what is left.
// Then each stored document is read: no marker is left, the sum is what it was, each
// balance is what the successful transfers make of it, each answer is true, and the
// webhook got each event of each transfer, and no other one.
// Audit must find nothing.
package soak
