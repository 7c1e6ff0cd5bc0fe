// Package patterns has the recipes of docs/patterns.md and docs/migrating.md.
// Each function that these pages show stands here, and a test runs it on a real server
// and ends with the audit.
//
// It is no package to import: copy what you need.
package patterns
