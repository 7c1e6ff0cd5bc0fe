package transfer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/recovery"
)

// HistoryPage is the number of entries that a statement reads at once.
const HistoryPage = historyPage

// ClearPatience is for how long CloseAccount waits for markers to go.
const ClearPatience = clearPatience

// HurryUpBy sets what is called where what is deferred of a transfer is wanted at once.
func (c *Coordinator) HurryUpBy(f func(id string) (done func())) { c.hurryUp = f }

// PurgedBefore makes a coordinator believe that transfers committed before t may have
// been removed.
func (c *Coordinator) PurgedBefore(t time.Time) {
	c.historyFrom = func(context.Context) (time.Time, error) { return t, nil }
}

// ClockAhead returns a function that sets the coordinator's clock ahead by a duration.
func (c *Coordinator) ClockAhead() func(time.Duration) {
	var ahead atomic.Int64
	c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return func(d time.Duration) { ahead.Store(int64(d)) }
}

// UnderWay reports whether a coordinator works on a transfer.
func (c *Coordinator) UnderWay(id string) bool {
	n, _ := c.engine.Executions(id)
	return n > 0
}

// RecoverNoting is Recover with UntilFinished, but notes at most that many transfers at
// once.
func (c *Coordinator) RecoverNoting(ctx context.Context, most int) (RecoveryReport, error) {
	settings := c.recovery()
	settings.MaxNoted = most
	return recovered(recovery.Sweep(ctx, settings, true))
}
