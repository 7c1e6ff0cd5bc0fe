// Package servers tests ledgers on several servers, of which some are away, silent or
// stopped.
package servers
