// Package chaos runs the library on real servers under faults, and checks the money all
// the time.
//
//	go run ./internal/chaos/cmd -for 20m -workers 4 -seed 17
//
// A replica set of three members serves several worker processes, which are this same
// program, started again.
// Each worker has a coordinator and several callers.
// The callers use all verbs on the same accounts: they transfer, exchange currencies,
// submit (for now, for later, and for when the money is there), wait, cancel, hold,
// extend, post, void and reverse, let holds expire, pay the same orders, ask again,
// close, reopen, freeze and unfreeze accounts, and recover with a threshold of zero.
// A worker reports each call, each answer and each event that it is given to its parent
// on a pipe.
// So when a worker is killed, no answer is lost except those that it never gave.
// The handlers of events fail, panic and hang now and then.
//
// Meanwhile the parent
//
//   - kills and stops workers;
//   - kills, stops and steps down the primary, which fails over;
//   - makes commands fail on the server (failCommand), by kind of command and kind of
//     failure;
//   - delays and loses messages and answers, and holds some messages back until long
//     after their senders gave up: workers reach the servers only through its wires,
//     which distinguish the commands;
//   - reads snapshots, and checks that balances and money in transit add up to what was
//     put in, in each currency, and that no order shows a payment before the payment is
//     committed.
//
// At the end everything is healed, recovery runs until no transfer is open and no event
// is left, and the messages that were held back arrive.
// Then the audit compares
//
//   - each balance with what the successful transfers make of it;
//   - each order with its payments;
//   - each transfer with its reversals, and with its events: each was delivered;
//   - each answer that any caller ever got with what is stored.
//
// Accounts are closed, reopened, frozen and unfrozen too often to check every such
// answer.
// There the last clear answer has to be true, if nothing came after it.
//
// The load goes on until each kind of fault has happened often enough.
// A run is void, and fails, if that takes more than three times its length, or if it did
// less than its minimum of work: such a run proves nothing.
package chaos
