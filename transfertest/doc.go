// Package transfertest is for the tests of a service that moves money with package
// transfer: a coordinator on a real server, and a fake that needs none.
//
// # On a real server
//
// [NewCoordinator] gives a test a coordinator with a database of its own. When the test
// ends, the database is audited, and every finding fails the test. The server is the one
// that MONGODB_URI names; otherwise one is found or fetched: see [NewDatabase].
// [AuditAtEnd] audits what a coordinator has left that the service's own code has made.
//
// # Without a server
//
// [NewFake] returns a [Fake] in memory. It has the methods of a *transfer.Coordinator, so
// it goes wherever the service asks for an interface with those that it uses:
//
//	type ledger interface {
//		Transfer(context.Context, transfer.Request) (transfer.Record, error)
//	}
//
// It answers as a coordinator on a server does, to the text of the errors, because it is
// one: what is in memory is the server. A table of calls and random calls are compared on
// both.
//
// A test makes happen what is rare, and what takes long:
//
//   - [Fake.InDoubt]: a transfer is carried out, and the call doesn't learn it.
//   - [Fake.Fail]: a transfer is refused.
//   - [Fake.Advance]: time passes, step by step. Holds expire, what was submitted comes
//     due, and events are delivered ([WithEvents]), each at its time.
package transfertest
