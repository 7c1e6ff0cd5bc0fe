package transferotel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/mongotransfer/transfer"
)

// freshFor is for how long what was counted is measured.
// Run counts some four times a minute.
// Once it has ended, or can't count any more, nothing is measured: an old number would
// look as if all were well.
const freshFor = time.Minute

// unfinished is what was counted last.
type unfinished struct {
	now func() time.Time

	mu    sync.Mutex
	stats transfer.Stats
	at    time.Time // by the clock of now; zero where nothing was counted
}

// counted keeps what was counted.
func (u *unfinished) counted(s transfer.Stats) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stats, u.at = s, u.now()
}

// latest returns what was counted last, and whether that is fresh.
func (u *unfinished) latest() (s transfer.Stats, now time.Time, fresh bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now = u.now()
	return u.stats, now, now.Sub(u.at) < freshFor
}

// observeCounts measures how many transfers are in each state.
func (u *unfinished) observeCounts(_ context.Context, o metric.Int64Observer) error {
	s, _, fresh := u.latest()
	if !fresh {
		return nil
	}
	for state, n := range map[string]int64{
		"scheduled": s.Scheduled, "due": s.Due, "preparing": s.Preparing, "held": s.Held, "overdue": s.Overdue,
		"committed": s.Committed, "rollback": s.Rollback, "stuck": s.Stuck, "undelivered": s.Undelivered,
	} {
		o.Observe(n, metric.WithAttributes(keyState.String(state)))
	}
	return nil
}

// observeAge measures the age of the oldest of them.
// That is a time of the server's clock, from which this one may differ.
func (u *unfinished) observeAge(_ context.Context, o metric.Float64Observer) error {
	s, now, fresh := u.latest()
	if !fresh {
		return nil
	}
	age := time.Duration(0)
	if !s.Oldest.IsZero() {
		age = max(0, now.Sub(s.Oldest))
	}
	o.Observe(age.Seconds())
	return nil
}
