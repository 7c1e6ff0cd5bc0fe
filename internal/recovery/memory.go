package recovery

import (
	"sync"
	"time"
)

// maxRemembered is how many transfers are remembered within one period.
// Their IDs are all that is kept: some megabytes.
const maxRemembered = 10_000

// memory remembers transfers for a period at least, and for two at most.
// It is safe for many goroutines.
type memory struct {
	now    func() time.Time
	period time.Duration

	mu     sync.Mutex
	turned time.Time // when the latest period began
	latest map[string]bool
	before map[string]bool // from the period before
}

func newMemory(now func() time.Time, period time.Duration) *memory {
	return &memory{now: now, period: period, turned: now(), latest: map[string]bool{}}
}

// add remembers a transfer, and reports whether that is news.
// Where there are too many, further ones are not remembered, and are no news.
func (m *memory) add(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.knows(id) || len(m.latest) >= maxRemembered {
		return false
	}
	m.latest[id] = true
	return true
}

// has reports whether a transfer is remembered.
func (m *memory) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knows(id)
}

// knows is has, and forgets what is older.
// The caller holds the lock.
func (m *memory) knows(id string) bool {
	now := m.now()
	if age := now.Sub(m.turned); age >= m.period {
		m.before = m.latest
		if age >= 2*m.period {
			m.before = nil
		}
		m.latest, m.turned = map[string]bool{}, now
	}
	return m.latest[id] || m.before[id]
}
