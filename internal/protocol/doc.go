// Package protocol is the state machine that moves money: a two-phase commit whose
// coordinator is whichever process holds the transfer's current epoch.
//
// A transfer is committed by the fact that every participant holds a trace of it.
// The decision that is stored then is the record of this fact.
// It goes out beside the payments, and before any trace is removed.
//
// An [Execution] is one run for one transfer.
// It performs nothing itself.
// [Execution.Next] returns the operations it wants performed, as data. The performer
// hands each [Answer] to [Execution.Observe] and asks Next again:
//
//	for x.Outcome() == Running {
//		operations, err := x.Next()
//		…
//		for i, answer := range perform(operations) {
//			x.Observe(operations[i], answer)
//		}
//	}
//
// The duties of the performer:
//
//  1. Every write is acknowledged by a majority and journaled, or its answer is Unknown.
//  2. Prepare and FenceOnly are sent once per request: never repeated by a driver or a
//     proxy.
//  3. Unknown is the answer whenever a write may have been applied and may not: after a
//     lost answer, a timeout, a cancelled context, a write-concern error, or any error of
//     a whole command. The one exception is a command of a single write whose error names
//     a cause for which it can't have changed anything.
//  4. NotMatched may be stale, and may be the answer for all writes of a command if only
//     some of them matched: the execution looks before it concludes anything from it.
//  5. Look and LookTransfer are deciding reads: they can't be answered by a primary that
//     was replaced. ReadFence and ReadTransfer show what a majority has stored, maybe
//     long ago.
//  6. Each sending of a write that replaces a fence carries a token that was never used
//     before.
//  7. After a look at a participant was answered with [Illegible], a write to it is
//     answered with Failed.
//
// [Execution.Progress] says what a caller may be told.
// What is asked for after that is nobody's wait, and may be performed later.
//
// A fresh transfer, one claimed from the queue, recovery, roll-back and cancelling are
// the same execution with another [Start], and so are holding, posting, voiding and the
// expiry of a hold.
// A participant is an account, or any document that changes in step with the money.
// The protocol knows both by their index in the transfer, and knows no amounts, only
// which participants lose money.
// What is written into a document, such as a part of what was held or other values, is up
// to the performer.
package protocol
