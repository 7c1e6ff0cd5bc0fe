// Package operations follows the runbooks of docs/operations.md, lets worker processes
// die, and runs the program of the README.
package operations
