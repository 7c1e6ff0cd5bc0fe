// Package upgrade tests how this release goes on where the release before it has stopped.
//
// The documents in testdata were written by that release, in format 1.
// Each of its transfers was left behind by a process that died before one of its writes,
// whose number is the end of the transfer's ID.
// Two times were changed afterwards, so that the documents stay what they are: the end of
// holds, and the time of the purge, are in the year 9000.
package upgrade
