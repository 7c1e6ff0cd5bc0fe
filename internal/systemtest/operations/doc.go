// Package operations plays the runbooks of docs/operations.md, worker processes that
// die, and the program of the README.
package operations
