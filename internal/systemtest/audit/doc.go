// Package audit tests the audit on a real server: what it finds in damaged documents,
// what it leaves alone, what it sees of two clusters, and what its repairs do.
package audit
