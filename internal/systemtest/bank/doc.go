// Package bank is what the systems tests share: a bank in a database of a test's own,
// with what sets it up, hurts it and checks its books.
//
//   - [Bank] is the bank; [NewShop] has orders that payments change, [NewBranches] has a
//     ledger on another server, [NewReplicated] is on a replica set of three.
//   - [Wire] loses, holds back or repeats a message; [Silence] swallows all of them.
//   - [Bank.StallAt], [Bank.Dying] and their kin leave behind what dead processes leave.
//   - [Bank.Change], [Bank.Insert], [Bank.Remove] and [Deleted] change documents behind
//     the library's back.
//   - [Bank.CheckBooks] compares each balance with the successful transfers.
package bank
