// Package memory is a MongoDB server in memory, as far as this library asks for one. It
// speaks the wire protocol over a pipe, so that the driver, and with it the library as it
// is, runs against it without knowing. It is what the fake of package transfertest stands
// on: the fake gives the same answers because the same code gives them.
//
// It knows the commands, the operators and the concerns that the library sends, and those
// that a test needs to put documents there and to look at them. Whatever else it is sent,
// be it a command, a field of one or an operator, it refuses by name: it never guesses.
// Tests compare how it matches, shows and changes documents with a real server.
//
// What it keeps:
//
//   - A statement happens at once and by itself, as there is one lock.
//   - A majority has stored every write by the time it is answered: there is one member.
//   - A read at a time (read concern snapshot) shows the documents as they were then.
//     Versions are kept for a minute, and an older snapshot is refused.
//   - Its clock runs, and can be set ahead. A TTL index removes documents when it is.
//
// What it doesn't have: transactions, other unique indexes than that of _id, validators,
// collations, sharding, users.
package memory
