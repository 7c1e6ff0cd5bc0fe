// Package liveness lets processes notice that another one has died.
//
// A process with transfers in progress notes that it lives, every 400 ms, in a small
// document of its own beside the transfers: see [Pulse].
// A worker that finds transfers in progress which nobody has touched for a while looks at
// the notes of the processes that have claimed them: see [Watch].
//
// A verdict may be wrong: a process can be paused, starved or cut off, and go on later.
// No money depends on it.
// It only makes a worker take over a transfer earlier than by the stall threshold, by the
// same claim, whose epoch bars the process that was thought dead.
// A takeover that was not needed costs work on both sides, so a verdict takes several
// looks, and none is given soon after the servers were away.
//
// A process of a release that writes no notes is never thought dead: the threshold alone
// decides.
package liveness

import (
	"crypto/rand"
	"strings"
	"time"
)

const (
	// Beat is the time between two notes of a process with transfers in progress.
	Beat = 400 * time.Millisecond
	// Quiet is how long a transfer in progress was not modified before a worker looks
	// whether its process lives.
	Quiet = 800 * time.Millisecond
	// Silence is how long a process gives no note before it may be thought dead.
	// A process that is slow to write its notes asks for more: see [Note].
	Silence = 1600 * time.Millisecond
	// longestSilence bounds what it asks for.
	longestSilence = 10 * time.Second
)

// NewProcess returns the identity of a process with the given name.
// Its random part distinguishes it from any other process, past and future.
func NewProcess(name string) string { return name + "-" + rand.Text()[:10] }

// NewOwner returns the owner of one execution of a process.
func NewOwner(process string) string { return process + "-" + rand.Text()[:16] }

// ProcessOf returns the process that an owner belongs to.
// For an owner that another release has stored it returns one that gives no notes.
func ProcessOf(owner string) string {
	end := strings.LastIndexByte(owner, '-')
	return owner[:max(end, 0)]
}

// ownerPrefix is what all owners of a process begin with, and no others.
func ownerPrefix(process string) string { return process + "-" }
