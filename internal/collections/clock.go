package collections

import (
	"context"
	"sync"
	"time"
)

// ServerTime returns what the clock of the transfers' server shows.
func (c *Catalog) ServerTime(ctx context.Context) (time.Time, error) {
	answer, err := Hello(ctx, c.Transfers)
	return answer.LocalTime, err
}

const (
	// ClockAge is how long a correction of the process's clock is used.
	ClockAge = time.Minute
	// ClockLeap is by how much the process's clock may be set, or its machine sleep,
	// before the correction is of no use any more.
	ClockLeap = time.Second
)

// ServerClock estimates the server's time from the process's clock.
// No decision about money rests on it.
type ServerClock struct {
	// Now is the process's clock.
	Now func() time.Time
	// Mu guards the fields below.
	Mu sync.Mutex
	// Offset is how far the server's clock was ahead.
	Offset time.Duration
	// Read is when the server's clock was read.
	Read time.Time
	// Wall is the same as a clock on the wall shows it, which may be set.
	Wall time.Time
}

// ReachedTime returns a time that the server's clock has certainly reached.
func (c *Catalog) ReachedTime(ctx context.Context) (time.Time, error) {
	if now, fresh := c.Clock.Estimate(); fresh {
		return now, nil
	}
	if err := c.Asking.Acquire(ctx); err != nil {
		return time.Time{}, err
	}
	defer c.Asking.Release()
	if now, fresh := c.Clock.Estimate(); fresh {
		return now, nil
	}
	answer, err := Hello(ctx, c.Transfers)
	if err != nil {
		return time.Time{}, err
	}
	c.Clock.Correct(answer.LocalTime)
	now, _ := c.Clock.Estimate()
	return now, nil
}

// Estimate returns the server's time, and whether the correction is fresh enough to rely
// on.
func (c *ServerClock) Estimate() (time.Time, bool) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	now := c.Now()
	// By a clock that nobody sets, and that may stand still while the machine sleeps.
	age := now.Sub(c.Read)
	leap := now.Round(0).Sub(c.Wall) - age
	fresh := !c.Read.IsZero() && age >= 0 && age < ClockAge && leap.Abs() < ClockLeap
	return now.Add(c.Offset).UTC().Truncate(time.Millisecond), fresh // as it will be read back
}

// Correct notes what the server's clock showed a moment ago, so that no estimate is ahead
// of it.
func (c *ServerClock) Correct(server time.Time) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Read = c.Now()
	c.Wall = c.Read.Round(0)
	c.Offset = server.Sub(c.Read)
}
