// Package verbs tests what holds of every public method: bad input, outcomes, reads
// that are cut short, refusals and their reasons.
package verbs
