package main

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// chain counts for how many writes a lone caller waits, one after the other.
// A write counts if a majority acknowledges it.
// Writes that are on their way side by side count as one wait, and a write that has no
// answer yet when the transfer answers is no wait.
// It is safe for concurrent use.
type chain struct {
	mu      sync.Mutex
	counts  bool
	longest int           // chain of writes that have begun and ended since the beginning
	ends    map[int64]int // the length of the chain that each write on its way ends
}

// begin begins with a transfer.
// Writes that are on their way belong to earlier ones.
func (c *chain) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.longest, c.ends = true, 0, map[int64]int{}
}

// end returns the number of waits since the beginning.
func (c *chain) end() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = false
	return c.longest
}

// started notes that a command is on its way.
func (c *chain) started(_ context.Context, e *event.CommandStartedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.counts {
		return
	}
	if w, ok := e.Command.Lookup("writeConcern", "w").StringValueOK(); ok && w == "majority" {
		c.ends[e.RequestID] = c.longest + 1
	}
}

// ended notes that a command has its answer.
func (c *chain) ended(request int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, c.ends[request])
	delete(c.ends, request)
}

// waitsOf returns the median of some counts.
func waitsOf(counts []int) float64 {
	values := make([]float64, len(counts))
	for i, n := range counts {
		values[i] = float64(n)
	}
	return median(values)
}
