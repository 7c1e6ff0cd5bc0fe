// Package poison tests transfers that can't be finished: they are reported as stuck, and
// delay nothing else.
package poison
