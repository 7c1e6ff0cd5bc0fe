// Package texts tests what errors, records and log lines say, and that they reveal no
// values.
package texts
