// Package chaos runs the library on real servers while everything that can be hurt is being hurt, and checks the money all the time.
//
//	go run ./internal/chaos/cmd -for 20m -workers 4 -seed 17
//
// A replica set of three members serves several worker processes: this very program, started again. Each worker has a coordinator and
// several clients, who ask for transfers between the same accounts, cancel, submit, wait, ask again, hold, post, void, let expire, pay
// the same orders, reverse what was done, close and reopen accounts, and recover with a threshold of zero. Each call and each answer is
// told to the parent on a pipe, so that a worker that is killed takes nothing with it but the answers that it never gave.
//
// Meanwhile the parent
//
//   - kills and stops workers;
//   - kills, stops and steps down the primary, which fails over;
//   - lets commands fail on the server (failCommand), by kind of command and of failure;
//   - delays messages or their answers, loses either, and holds some back until long after their senders gave up: workers reach the
//     servers only through its wire, which knows one command from another;
//   - reads snapshots, and checks that balances and money in transit add up to what was put in, and that no order shows a payment before
//     it is committed.
//
// At the end all is healed, recovery runs until no transfer is open, the messages that were held back arrive, and the audit compares each
// balance with what the successful transfers make of it, each order with the payments of it, each transfer with its reversals, and each
// answer that any caller was ever given with what is stored. An account is closed or reopened too often for that: there it is the last
// clear answer that has to be true, where nothing came after it.
//
// The load goes on until each kind of fault has happened often enough. A run that did not get there in three times its time, or did not
// do its minimum of work, is void: it proves nothing, and fails.
package chaos
