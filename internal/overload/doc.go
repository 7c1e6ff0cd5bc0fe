// Package overload puts too much load on the library, on real servers, and measures how
// well the library copes.
//
//	go run ./internal/overload/cmd -only 1,5
//
// Each scenario compares the same callers before and during a load: 20,000 calls at once,
// a narrow line, a server that falls silent, thousands of waiting callers, a document
// that another transaction has locked.
// It prints what it has measured, what must hold, and whether it does.
// Rates are measured in windows that take turns, before, during, before, during, and are
// compared with each other only, because a busy machine changes both.
//
// What a reader finds:
//
//   - run.go, config.go, report.go: the list of scenarios, their size, and what is
//     printed.
//   - congestion.go, outage.go, waiters.go, hanging.go, slow.go, recover.go, locked.go,
//     neighbours.go, arrivals.go: one scenario each.
//   - soak.go: a mixed load for as long as is asked for.
//   - scene.go, bank.go, cluster.go: what a scenario plays on: accounts, coordinators,
//     and the clusters as the coordinators see them.
//   - crowd.go, flood.go: callers in closed loops, and callers all at once.
//   - line.go, bucket.go, message.go: the network between a client and a server: narrow,
//     silent, refusing, or holding back single commands.
//   - counts.go, usage.go: what is counted: commands, statements, connections; memory and
//     goroutines.
//
// Each scenario ends with an audit once nothing is in progress, and with as many
// goroutines as at its beginning.
// The tests play the same scenarios in a short form.
// Its bounds are strict for what is counted and wide for what is timed.
package overload
