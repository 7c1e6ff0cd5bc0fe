// Package insight tests what the person on call sees: Explain, Stats, the observer, and
// the log of one transfer.
package insight
