package chaos

import (
	"fmt"
	"sync"
)

// mostFindings is how many findings are told in full.
const mostFindings = 20

// findings is what is wrong. It is safe for many goroutines.
type findings struct {
	mu    sync.Mutex
	known map[string]bool
	told  []string
}

func newFindings() *findings { return &findings{known: map[string]bool{}} }

// add takes down a finding about a subject, unless there is one already: what is wrong in one snapshot is wrong in the next one too.
func (f *findings) add(subject, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[subject] {
		return
	}
	f.known[subject] = true
	if len(f.told) < mostFindings {
		f.told = append(f.told, fmt.Sprintf(format, args...))
	}
}

// all returns how many there are, and what the first ones say.
func (f *findings) all() (int, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known), f.told
}
