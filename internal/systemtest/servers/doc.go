// Package servers tests ledgers on several servers. Some of these are away, silent or
// stopped.
package servers
