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
	now   func() time.Time
	fixed fixed

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

// create creates the metrics of what is unfinished, for all that is counted here.
// A callback that comes with an instrument is dropped where there is such an instrument
// already: so each observer registers one of its own.
func (u *unfinished) create(meter metric.Meter) error {
	counts, err := meter.Int64ObservableGauge("transfer.unfinished", metric.WithUnit("{transfer}"),
		metric.WithDescription("Transfers of the whole deployment that are unfinished."))
	if err != nil {
		return err
	}
	age, err := meter.Float64ObservableGauge("transfer.unfinished.age", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest unfinished transfer has been due."))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		u.observe(o, counts, age)
		return nil
	}, counts, age)
	return err
}

// observe measures how many transfers are in each state, and the age of the oldest.
// That is a time of the server's clock, from which this one may differ.
func (u *unfinished) observe(o metric.Observer, counts metric.Int64Observable, age metric.Float64Observable) {
	s, now, fresh := u.latest()
	if !fresh {
		return
	}
	for state, n := range map[string]int64{
		"scheduled": s.Scheduled, "due": s.Due, "preparing": s.Preparing, "held": s.Held, "overdue": s.Overdue,
		"committed": s.Committed, "rollback": s.Rollback, "stuck": s.Stuck, "undelivered": s.Undelivered,
	} {
		o.ObserveInt64(counts, n, u.fixed.with(keyState.String(state)))
	}
	late := time.Duration(0)
	if !s.Oldest.IsZero() {
		late = max(0, now.Sub(s.Oldest))
	}
	o.ObserveFloat64(age, late.Seconds(), u.fixed.with())
}
