// Package overload asks too much of the library on real servers, and measures how well it
// stays on its feet.
//
//	go run ./internal/overload/cmd -only 1,5
//
// Each scenario compares the same callers before and while something presses: 20,000
// calls at once, a narrow line, a server that falls silent, thousands who wait, a
// document that somebody else has locked. It prints what it has seen, what must hold, and
// whether it does. Rates are measured in windows that take turns, before, during, before,
// during, and only ever compared with each other: a busy machine changes both.
//
// What a reader finds:
//
//   - run.go, config.go, report.go: the list of scenarios, how large they are, and what
//     is printed.
//   - congestion.go, outage.go, waiters.go, hanging.go, slow.go, recover.go, locked.go,
//     neighbours.go: a scenario each.
//   - soak.go: a mixed load for as long as is asked for.
//   - scene.go, bank.go, cluster.go: what a scenario plays on: accounts, coordinators,
//     and the clusters as these see them.
//   - crowd.go, flood.go: callers in closed loops, and callers all at once.
//   - line.go, bucket.go, message.go: the network between a client and a server: narrow,
//     silent, refusing, or holding back single commands.
//   - counts.go, usage.go: what is counted: commands, statements, connections; memory and
//     goroutines.
//
// Each scenario ends with an audit, once nothing is under way any more, and with as many
// goroutines as there were at its beginning.
//
// The tests play the same scenarios in a short form, whose bounds are strict for what is
// counted and wide for what is timed.
package overload
