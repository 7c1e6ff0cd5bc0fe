// Package soak runs examples/service as three processes on one database, hurts them, and
// checks every answer that they gave with the driver alone.
//
//	go run ./internal/soak/cmd -for 15m
//
// Clients ask any of the processes for transfers and holds, post and void these or leave
// them to expire, ask again with the same key wherever they were not answered, and once
// more long after they were. Meanwhile the processes are killed in turn and restarted one
// after another as Kubernetes does it, and the user of the service has no right to change
// accounts, at the start and later again, until somebody grants it.
//
// At the end all processes are stopped, one Recover finishes what is left, and each
// stored document is read: no marker is left, the sum is what it was, each balance is
// what the successful transfers make of it, and each answer is true. Then Audit must find
// nothing.
package soak
