package mongostore

import (
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	maxKnownFences = 1 << 16
	// fenceAge is how long a fence is believed without a read. An old one is safe, it only costs a refused prepare; but
	// the number of transfers in flight that others have put on the participant is learned by reading alone.
	fenceAge = time.Minute
)

// knownFence is what is known of a participant. Only what a majority has stored gets in: from a read of that, or from an
// acknowledged write. 1. A sends a new fence; it is stored by a primary alone. 2. B learns it and pins it. 3. The
// primary falls, the fence is rolled back, and A's repeat of it arrives later: B's prepares fit again.
type knownFence struct {
	fence   protocol.Fence
	floor   floor
	markers int // seen by the last read, and the changes to it made here since
	read    time.Time
}

// fenceCache remembers the fences of participants, so that a transfer between known ones needs no read.
type fenceCache struct {
	mu      sync.Mutex
	now     func() time.Time
	entries map[Subject]knownFence
}

// get returns what is known, unless it is old or there may be too many transfers in flight.
func (c *fenceCache) get(key Subject, markerLimit int) (knownFence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.entries[key]
	fresh := ok && known.markers < markerLimit && c.now().Sub(known.read) < fenceAge
	return known, fresh
}

// learn takes in what a majority read has shown.
func (c *fenceCache) learn(key Subject, fence protocol.Fence, f floor, markers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxKnownFences {
		for oldest := range c.entries { // any will do
			delete(c.entries, oldest)
			break
		}
	}
	c.entries[key] = knownFence{fence: fence, floor: f, markers: markers, read: c.now()}
}

// applied takes in an acknowledged write: a new fence, if it set one, and the number of markers added.
func (c *fenceCache) applied(key Subject, fence protocol.Fence, markers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.entries[key]
	if !ok {
		return
	}
	if fence != "" {
		known.fence = fence
	}
	known.markers += markers
	c.entries[key] = known
}

func (c *fenceCache) forget(key Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}
