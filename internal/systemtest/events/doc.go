// Package events tests that every event is delivered at least once, whoever dies, fails
// or hangs, and what is stored for it.
package events
