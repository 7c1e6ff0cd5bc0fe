// Package texts tests what errors, records and log lines say, and that they give
// nothing away.
package texts
