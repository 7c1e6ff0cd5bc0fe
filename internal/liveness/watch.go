package liveness

import (
	"slices"
	"sync"
	"time"
)

const (
	// LookPeriod is the time between two looks.
	LookPeriod = 450 * time.Millisecond
	// longestGap is the longest time between two looks that belong together.
	longestGap = 3 * LookPeriod
	// slowLook is how long a look may take.
	// One that takes longer shows that the server, or this process, is held up.
	slowLook = 500 * time.Millisecond
	// unchanged is for how long, and lookedAt how often in that time, a note has to be
	// the same before its process is thought dead.
	unchanged = 800 * time.Millisecond
	lookedAt  = 3
	// calm is how long nobody is thought dead after the servers, or this process, were
	// held up.
	calm = 5 * time.Second
)

// Watch judges which processes have died.
// It is safe for many goroutines.
//
// It goes by its own clock, and by whether a note changes while it looks: a clock of a
// server that leaps, or that of another server after a failover, makes every note look
// old, and the next beat shows that it isn't.
// A worker that was away itself must not judge those who were not:
//
//  1. The primary is replaced. For ten seconds nobody can write.
//  2. A worker is the first one that gets through to the new primary. All notes are ten
//     seconds old.
//  3. Without a pause it would take over everything that all the others are about to go
//     on with.
type Watch struct {
	process string
	now     func() time.Time

	mu        sync.Mutex
	suspects  map[string]suspect
	looked    time.Time // when the latest look began
	calmUntil time.Time
}

// suspect is a process whose note was looked at.
type suspect struct {
	seen  time.Time // its latest note
	since time.Time // when that was looked at first
	looks int
}

// NewWatch returns the watch of a process, which never thinks itself dead.
func NewWatch(process string, now func() time.Time) *Watch {
	return &Watch{process: process, now: now, suspects: map[string]suspect{}}
}

// HeldUp says that the servers did not answer, or not in time, or that this process was
// held up itself.
func (w *Watch) HeldUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calmUntil = w.now().Add(calm)
}

// Asked says that the servers have just answered a question that was asked at begun.
// It finds out whether they, or this process, were held up: the answer took long, or the
// question came long after the one before, which was asked at before.
// The zero time stands for none before.
func (w *Watch) Asked(before, begun time.Time) {
	if w.now().Sub(begun) > slowLook || !before.IsZero() && begun.Sub(before) > longestGap {
		w.HeldUp()
	}
}

// Dead returns which processes are dead, by the notes that a look which began at a given
// time has found: those that have been silent for as long as they said they might, and
// whose notes have not changed over several looks.
func (w *Watch) Dead(notes []Note, begun time.Time) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looked.IsZero() && begun.Sub(w.looked) > longestGap {
		w.suspects = map[string]suspect{}
	}
	w.looked = begun
	suspects := map[string]suspect{}
	var dead []string
	for _, note := range notes {
		s, known := w.suspects[note.Process]
		if !known || !s.seen.Equal(note.Seen) {
			s = suspect{seen: note.Seen, since: begun}
		}
		s.looks++
		suspects[note.Process] = s
		if note.Silent && s.looks >= lookedAt && begun.Sub(s.since) >= unchanged &&
			note.Process != w.process && !begun.Before(w.calmUntil) {
			dead = append(dead, note.Process)
		}
	}
	w.suspects = suspects
	slices.Sort(dead)
	return dead
}

// Processes returns the processes that some owners belong to, but for this one, each
// once.
func (w *Watch) Processes(owners []string) []string {
	found := map[string]bool{"": true, w.process: true}
	var processes []string
	for _, owner := range owners {
		if process := ProcessOf(owner); !found[process] {
			found[process] = true
			processes = append(processes, process)
		}
	}
	return processes
}

// Owners returns what the owners of some processes begin with.
func Owners(processes []string) []string {
	prefixes := make([]string, 0, len(processes))
	for _, process := range processes {
		prefixes = append(prefixes, ownerPrefix(process))
	}
	return prefixes
}
