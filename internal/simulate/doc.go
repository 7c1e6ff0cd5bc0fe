// Package simulate runs the protocol in a world that does to it whatever a network, a crash and a failover can do.
//
// A [World] is a database in memory. It performs the operations of internal/protocol on simple documents, by the same
// filters as internal/mongostore, and remembers what the invariants need. Executors are real executions of internal/protocol. A run is
// a list of moves: an executor's operation meets its fate, a message that was late arrives, an account is closed, the primary falls.
// After each move the invariants 1 to 5 of the protocol are checked; and from sampled moments a recovery runs alone and without
// faults, after which everything must be final and no marker left, whatever still arrives: invariant 6.
//
//   - [Play] plays the run that a seed stands for. A seed that breaks an invariant gives a [Failure], which tells the shortest
//     story that was found.
//   - [Explore] walks through every interleaving of a [Scene].
//
// Writes of different transfers to one account may travel as one update: what may is in merged.go, and what can become of it in mixture.go.
//
// Some transfers are holds, which others post, wholly or in part, void, or take over once their time is over: that a clock says so is a
// move of its own. Some change a document as well: it requires a value, sets one of its own, and may be written by others meanwhile, or
// removed where nothing is owed to it. What is promised of both is checked in promises.go.
//
// What can happen to an operation is listed in fate.go, what else can happen in move.go. An executor that is never chosen again has
// crashed; one that is chosen again much later was paused. The threshold of a takeover is always zero.
//
// What is not in the world: documents that vanish although something is owed to them, transfers that are purged or of a later version,
// members that are cut off from each other for long (an old primary only answers), and a late message that a failover takes back.
package simulate
