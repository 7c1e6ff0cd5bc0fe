// Package faults strikes every message of every verb, and changes documents while
// transfers are in progress. Each transfer must happen once or not at all.
package faults
