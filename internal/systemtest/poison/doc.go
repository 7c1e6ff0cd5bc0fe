// Package poison tests transfers that can't be finished: they are reported as stuck,
// and hold up nothing else.
package poison
