package chaos

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// blow is one kind of fault and what it hit: a kind of command, or "" for processes.
// It also counts answers, by verb and word.
type blow struct{ fault, at string }

// tally counts faults.
// It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[blow]int
}

func newTally() *tally { return &tally{counts: map[blow]int{}} }

func (t *tally) add(fault, at string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[blow{fault, at}] += n
}

// least returns the fault, of those given, that has hit a kind of command least often.
func (t *tally) least(at string, faults []string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.MinFunc(faults, func(a, b string) int { return cmp.Compare(t.counts[blow{a, at}], t.counts[blow{b, at}]) })
}

// all returns the present counts.
func (t *tally) all() map[blow]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
