// Package waiters tests callers that race for one transfer, wait for it together, and
// share commands.
package waiters
