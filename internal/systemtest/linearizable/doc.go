// Package linearizable records what many clients see while processes die, messages are
// lost and primaries change, and checks the history against a model.
package linearizable
