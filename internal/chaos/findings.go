package chaos

import (
	"fmt"
	"sync"
)

// mostFindings is how many findings are kept in full.
const mostFindings = 20

// findings is what is wrong.
// It is safe for concurrent use.
type findings struct {
	mu    sync.Mutex
	known map[string]bool
	told  []string
}

func newFindings() *findings { return &findings{known: map[string]bool{}} }

// add records a finding about a subject, unless there is one already.
// What is wrong in one snapshot is also wrong in the next one.
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

// all returns the number of findings, and the texts of the first ones.
func (f *findings) all() (int, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known), f.told
}
