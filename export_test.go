package transfer

import (
	"context"
	"time"
)

// HistoryPage is how many entries a statement reads at once.
const HistoryPage = historyPage

// PurgedBefore makes a coordinator believe that what was committed before may have been removed.
func (c *Coordinator) PurgedBefore(t time.Time) {
	c.historyFrom = func(context.Context) (time.Time, error) { return t, nil }
}

// SetClockAhead makes a coordinator believe that it is later by so much, but for what is under way.
func (c *Coordinator) SetClockAhead(d time.Duration) {
	c.now = func() time.Time { return time.Now().Add(d) }
}
