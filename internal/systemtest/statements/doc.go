// Package statements tests the history of accounts against a model, under load, across
// lost messages and before the first use.
package statements
