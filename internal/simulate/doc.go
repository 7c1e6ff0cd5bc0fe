// Package simulate runs the protocol in a world that does to it whatever a network, a
// crash and a failover can do.
//
// A [World] is a database in memory.
// It performs the operations of internal/protocol on simple documents, by the same
// filters as internal/mongostore, and remembers what the invariants need.
// Executors are real executions of internal/protocol.
// A run is a list of moves: an executor's operation meets its fate, a late message
// arrives, an account is closed or frozen, the primary fails.
// After each move the invariants 1 to 5 of the protocol are checked.
// From sampled moments a recovery runs alone and without faults.
// After that everything must be final and no marker left, whatever still arrives:
// invariant 6.
//
//   - [Play] plays the run that a seed stands for. A seed that breaks an invariant gives
//     a [Failure] with the shortest story that was found.
//   - [Explore] walks through every interleaving of a [Scene].
//
// Writes of different transfers to one account may travel as one update: merged.go says
// which ones may, and mixture.go what can become of it.
//
// Some transfers are holds.
// Other executors post them, wholly or in part, void them, or take them over once they
// have expired.
// That a hold expires is a move of its own, and so is that it is extended, by a primary
// whose clock may be behind.
// Some transfers change a document as well.
// They require a value and set one of their own.
// Others may write the document in the meantime, or remove it if nothing is owed to it.
// What is promised of holds and documents is checked in promises.go.
//
// A caller hears that a transfer is committed as soon as its executor knows the fact.
// From then on nothing may roll it back, and until the record is stored each participant
// must hold a trace of it.
//
// Some transfers were stored by an earlier release, which knows no commit by fact.
// Executors of that release work on them beside those of this one.
//
// What can happen to an operation is listed in fate.go, and what else can happen in
// move.go.
// An executor that is never chosen again has crashed; one that is chosen again much later
// was paused.
// The threshold of a takeover is always zero.
//
// Not in the world are documents that vanish although something is owed to them, or
// whose traces can't be read, transfers that are purged or of a later version, members
// that are cut off from each other for long (an old primary only answers), and a late
// message that a failover takes back.
package simulate
