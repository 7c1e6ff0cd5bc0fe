// Package transfer moves money, or any quantity, between MongoDB documents with a
// two-phase commit of its own. It needs no multi-document transaction and no central
// transaction manager, and no crash, pause, retry or failover loses, doubles or mints a
// unit. The accounts of one transfer may live in several collections, databases and
// clusters.
//
//	coord, err := transfer.NewCoordinator(client.Database("bank"))
//	...
//	defer coord.Close(ctx)                         // finishes what it has begun
//	if err := coord.Setup(ctx); err != nil { ... } // collections, indexes
//	report, err := coord.Recover(ctx)              // finishes what has stalled
//	go coord.Run(ctx)                              // finishes what stalls later
//
//	// Money comes from an account, too: this one has no floor.
//	_, err = coord.OpenAccount(ctx, transfer.Account{ID: "world", NoFloor: true})
//	_, err = coord.OpenAccount(ctx, transfer.Account{ID: "alice"})
//	rec, err := coord.Transfer(ctx, transfer.Request{
//		ID: "deposit-1", From: "world", To: "alice", Amount: transfer.Units(10_000),
//	})
//
// The package example is a whole program, from its start to its end.
//
// # The guarantee
//
// Each transfer happens exactly once or not at all. Its ID is the idempotency key:
// however often a caller asks, and from any process, the money moves once, and every
// caller gets the same answer. No debit leaves an account below its floor. What Transfer
// answers always agrees with the transfer's final state.
//
// Transfer answers without an error once the money is there, for every reader. That is
// after three waits for a majority of the servers: the transfer is stored, everything is
// prepared, the money is paid in. [WithReturnAt] lets it answer after two, when nothing
// can take the transfer back any more, or when nothing is left to be done.
//
// While a transfer is under way, the money taken from one account is not yet on the
// other. Readers of both accounts see it in transit: [Account].Posted and
// [Account].Incoming show it. Transfers are isolated from each other, but your own reads
// of several accounts are not a snapshot.
//
// # More than a transfer
//
// [Coordinator.Hold] reserves what a transfer moves, and stops there. [Coordinator.Post]
// moves all or a part of it. [Coordinator.Void] gives it back, and so does the hold's
// expiry, which [Coordinator.Extend] moves. An [Effect] changes a document in step
// with the money. [Coordinator.Reverse] moves money of a transfer back: all that is left
// of it, an amount, or some legs. Legs in several currencies ([Leg].Currency) are an
// exchange, which happens in all of them or in none. Each is as safe as a transfer,
// because each is one.
//
// [Coordinator.Statement] and [Coordinator.BalanceAt] read an account's past.
// [Coordinator.Audit] checks all of this on live data, from one snapshot per cluster, and
// blocks no transfer. Each [Finding] says what to do next.
//
// # Many at once
//
// Transfers that run at once share their commands, and those on one account share their
// statements. While a command is on its way, the next one gathers. So a lone transfer
// waits for no other, and each of a thousand costs a fraction of a command. There is
// nothing to tune: call [Coordinator.Transfer] from as many goroutines as you like, or
// call [Coordinator.TransferMany]. Beyond [GroupCommit].MaxPending, callers wait for a
// place. When more calls come than are served, those that would not be served before
// their deadlines are refused early, so that the others are served as fast as ever.
//
// # What a crash leaves
//
// A transfer is a document in the transfers collection. Its [State] says how far it has
// come. While it is under way, each of its accounts holds a marker. A process that dies
// leaves both behind, and nothing is lost: [Coordinator.Recover], in any process that
// shares the collections, takes the transfer over and finishes it. It is safe at any
// time, beside live transfers and beside itself. Call it when your service starts, and
// keep [Coordinator.Run] running: without Run, nothing finishes what crashes later, and
// no hold expires. With it, other processes notice within seconds that one has died.
//
// Some transfers can't be finished: an account was deleted in the middle of one, or the
// server refuses to write to it. Such a transfer stays as it is and blocks no other.
// [Record].Stuck says why, and a [Query] with Stuck lists all of them. Recovery tries
// such a transfer again after one stall threshold, then after 2, 4 … 64, each counted
// from the latest try. So it finishes by itself once the cause is repaired.
//
// # Later, and for what
//
// [Coordinator.Submit] stores a transfer for a worker. With NotBefore, the worker runs it
// no earlier than that time by the server's clock, so the clocks of your machines don't
// matter. Its money is not reserved before. With AwaitFundsUntil, it waits until its
// accounts can pay, but not beyond that time: [Record].Waiting says what it lacks. Any
// number of transfers may wait: workers read only those that are due. [Request].Metadata
// is stored with each transfer, and [Coordinator.List] finds transfers by it, page by
// page: see [Query].Beyond. [Coordinator.Count] counts them.
//
// With [WithEvents], [Coordinator.Run] reports to your handler that a transfer is held,
// has succeeded or has failed. Each event is delivered at least once, whatever crashes.
// [Coordinator.Redeliver] tries an event again that was given up.
//
// # How long transfers are kept
//
// Transfers are kept for good, unless [WithRetention] lets the server remove the final
// ones after a while. An ID is remembered as long as its transfer is stored: that is the
// idempotency window. Within it a repeated call has the outcome of the first one. After
// it the ID is free, and the same call moves the money again. So choose a retention
// longer than any caller may retry, than any queue may take to deliver the same order
// twice, and than any process may sleep between two tries. The shortest retention is one
// hour: no message about a finished transfer can be on its way for that long.
//
// # Errors
//
// An error says where the money is, and [OutcomeOf] says it in one word:
//
//   - Moved: nil, and ErrUnsettled for a transfer that is committed for good but not in
//     place everywhere yet.
//   - Failed: a [RefusedError] (ErrInsufficientFunds and the like), ErrCancelled and
//     ErrExpired. The transfer is stored, has failed for good, and nothing moved.
//   - InDoubt: ErrInDoubt. The outcome is not known. Ask again with the same ID.
//   - Unchanged: ErrIDConflict, and the errors of verbs that came too late or to the
//     wrong thing.
//   - NothingStored: the context's own error, a server that can't be reached for 30 s,
//     ErrClosed, ErrInvalidRequest and the like. This call has stored nothing.
//
// NothingStored is about one call. An earlier call with the same ID keeps its outcome: a
// caller that repeats a successful request with an ended context, or on a closed
// Coordinator, gets the context's error or ErrClosed, though the money has moved. So
// repeat a request under the same ID, never under a new one, until a call answers. Where
// this process still works on a transfer with that ID, the error is ErrInDoubt.
//
// # The caller's duties
//
//   - Use a replica set or a sharded cluster of MongoDB 5.0 or later. Collections may be
//     sharded by _id, and by nothing else.
//   - All coordinators that touch a collection of accounts share one transfers collection
//     and use the same field names. A note beside each collection records them, and a
//     coordinator with other options is refused: see [Coordinator.Setup].
//   - Don't replace an account's document as a whole, delete it, or restore it from a
//     backup while transfers are in flight on it, nor a document that an [Effect]
//     changes. If it is deleted, a commit that was reported to a caller may be lost.
//     Changing the balance by $inc, or fields that are not the library's, is fine at any
//     time.
//   - Balances are int32, int64 or Decimal128. A double is refused.
//   - Don't remove transfers by hand. The library knows what [WithRetention] may have
//     removed, and refuses to report an account's history from before then.
//
// A context with a session, or with a running MongoDB transaction, makes no difference: a
// transfer is never part of it.
package transfer
