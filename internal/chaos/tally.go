package chaos

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// event is something that is counted.
// For a fault, at is the kind of command that it hit, or "" for processes.
// For an answer, what is the verb, and at is the word.
type event struct{ what, at string }

// tally counts faults.
// It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[event]int
}

func newTally() *tally { return &tally{counts: map[event]int{}} }

func (t *tally) add(fault, at string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[event{fault, at}] += n
}

// least returns the fault, of those given, that has hit a kind of command least often,
// and how often it has.
func (t *tally) least(at string, faults []string) (fault string, times int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fault = slices.MinFunc(faults, func(a, b string) int { return cmp.Compare(t.counts[event{a, at}], t.counts[event{b, at}]) })
	return fault, t.counts[event{fault, at}]
}

// all returns the present counts.
func (t *tally) all() map[event]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
