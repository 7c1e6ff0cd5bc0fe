// Package verbs tests the promises of every public method: bad input, outcomes, reads
// that are cut short, refusals and their reasons.
package verbs
