// Package transfer moves money, or any quantity, between MongoDB documents with a
// two-phase commit of its own: no multi-document transaction, no central transaction
// manager, and no unit lost, doubled or minted by any crash, pause, retry or failover.
// The accounts of one transfer may live in several collections, databases and clusters.
//
//	coord, err := transfer.NewCoordinator(client.Database("bank"))
//	...
//	defer coord.Close(ctx)                          // finishes what it has begun
//	if err := coord.Setup(ctx); err != nil { ... }  // collections and indexes; idempotent
//	report, err := coord.Recover(ctx)               // finishes what has stalled
//	go coord.Run(ctx)                               // and what stalls from now on; voids holds that expire
//
//	_, err = coord.OpenAccount(ctx, transfer.Account{ID: "world", NoFloor: true}) // where money comes from
//	_, err = coord.OpenAccount(ctx, transfer.Account{ID: "alice"})
//	rec, err := coord.Transfer(ctx, transfer.Request{
//		ID: "deposit-1", From: "world", To: "alice", Amount: transfer.Units(10_000),
//	})
//
// The example shows a whole program, with its end.
//
// # The guarantee
//
// Each transfer happens exactly once or not at all. Its ID is the idempotency key: ask as
// often as you like, from wherever you like; the money moves once, and everybody is told
// the same. No debit leaves an account below its floor. What Transfer answers agrees with
// the transfer's final state for ever.
//
// Between a transfer's first write and its last one, the money taken from one account is
// not yet on the other: readers of both accounts can see it in transit, as
// [Account].Posted and [Account].Incoming tell. Transfers are isolated from each other,
// and your own reads of several accounts are not a snapshot.
//
// # More than a transfer
//
// [Coordinator.Hold] reserves what a transfer moves and stops there; [Coordinator.Post]
// moves it, all or a part, [Coordinator.Void] gives it back, and so does the hold's
// expiry. An [Effect] changes a document in step with the money. [Coordinator.Reverse]
// moves a transfer's money back, once. Each is as safe as a transfer, because each is
// one.
//
// [Coordinator.Statement] and [Coordinator.BalanceAt] read an account's past.
// [Coordinator.Audit] checks all of this on live data, from one snapshot per cluster,
// without holding anybody up; each [Finding] says what to do next.
//
// # Many at once
//
// Transfers that run at once share their commands, and those on one account their
// statements: while a command is on its way, what comes next gathers, so that a lone
// transfer waits for nobody and a thousand cost a fraction of a command each. There is
// nothing to tune: call [Coordinator.Transfer] from as many goroutines as you like, or
// [Coordinator.TransferMany]. Beyond [GroupCommit].MaxPending callers wait for a place,
// until their contexts end.
//
// # What a crash leaves
//
// A transfer is a document in the transfers collection, whose [State] says how far it is;
// and while it is under way, a marker in each of its accounts. A process that dies leaves
// both behind. Nothing is lost: [Coordinator.Recover], in any process that shares the
// collections, takes the transfer over and brings it to its end. Call it when your
// service starts, and let [Coordinator.Run] do so every now and then: without Run, what
// crashes later, and a hold that expires, is left as it is. It is safe at any time,
// beside live transfers and beside itself.
//
// A transfer that can't be finished, because an account was deleted in the middle of it
// or the server refuses to write to one, stays as it is and holds up nobody.
// [Record].Stuck tells why, a [Query] with Stuck lists them all. It is tried again after
// twice the stall threshold, four times, and so on up to 64 times, and so finishes by
// itself once the cause is repaired.
//
// # Later, and who asks for what
//
// [Coordinator.Submit] stores a transfer for a worker, one with a NotBefore for then: by
// the server's clock, so that the clocks of your machines don't matter. Its money is not
// reserved before. Any number of them may wait: workers look only at what is due.
// [Request].Metadata is kept with each transfer, and [Coordinator.List] finds transfers
// by it.
//
// # How long transfers are kept
//
// For good, unless [WithRetention] lets the server remove the final ones after a while.
// An ID is remembered for as long as its transfer is there: that is the idempotency
// window. Within it a repeated call has the same outcome as the first; after it the ID is
// as good as new, and the same call moves the money again. So choose a retention longer
// than any caller may retry for, than any queue may deliver the same order twice, and
// than any process may sleep between two tries. An hour is the least that is allowed: no
// message about a transfer that is over can be on its way for so long.
//
// # Errors
//
// An error tells where the money is, and [OutcomeOf] says it in one word:
//
//   - Moved: nil, and ErrUnsettled, of what is committed for good and not in place
//     everywhere yet.
//   - Failed: a [RefusedError] (ErrInsufficientFunds and the like), ErrCancelled and
//     ErrExpired. The transfer is stored, has failed for good, and nothing moved.
//   - InDoubt: ErrInDoubt. It is not known; ask again with the same ID.
//   - Unchanged: ErrIDConflict, and the errors of verbs that came too late or to the
//     wrong thing.
//   - NothingStored: the context's own error, a server that can't be reached for 30 s,
//     ErrClosed, ErrInvalidRequest and the like. This call has stored nothing.
//
// NothingStored is about one call. Who asks again for what has succeeded, with a context
// that has ended or of a closed Coordinator, is told the context's error or ErrClosed,
// and the money has moved all the same: an earlier call keeps its outcome. So what was
// asked for once is asked for again under the same ID, and never under a new one, until a
// call answers. Where this process is still at a transfer with that ID the error is
// ErrInDoubt.
//
// # The caller's duties
//
//   - A replica set or a sharded cluster of MongoDB 5.0 or later. Collections may be
//     sharded by _id, and by nothing else.
//   - All coordinators that touch a collection of accounts share one transfers collection
//     and use the same field names. A note beside each collection says which, and a
//     coordinator with other options is refused: see [Coordinator.Setup].
//   - Nobody replaces an account's document whole, deletes it, or restores it from a
//     backup, while transfers are in flight on it. Changing the balance by $inc, or
//     fields that are not the library's, is fine at any time.
//   - Balances are int32, int64 or Decimal128. A double is refused.
//   - Nobody removes transfers by hand: what [WithRetention] removes is told to those who
//     read an account's history.
//
// A context with a session, or with a running MongoDB transaction, makes no difference: a
// transfer is never part of it.
package transfer
