package linearizable

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// vigil repeats an audit while a load runs.
type vigil struct {
	audits, moving atomic.Int64 // all, and those that found money in transit
	over           chan struct{}
}

// audited starts to audit a bank again and again until ctx ends.
// All balances and all money in transit add up to sum.
func audited(ctx context.Context, b *bank.Bank, c *transfer.Coordinator, sum int64) *vigil {
	v := &vigil{over: make(chan struct{})}
	expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(sum)}}}
	go func() {
		defer close(v.over)
		for ctx.Err() == nil {
			report, err := c.AuditWith(ctx, expected)
			if ctx.Err() != nil {
				return
			}
			if assert.NoError(b.T, err) && assert.Empty(b.T, report.Findings) {
				v.audits.Add(1)
				if !report.InTransit.IsZero() {
					v.moving.Add(1)
				}
			}
		}
	}()
	return v
}

// watch runs a load to its end, ends the vigil, and requires sound books.
func (v *vigil) watch(l *load, stop func()) {
	t := l.b.T
	t.Helper()
	l.run()
	l.judge()
	stop()
	bank.Within(t, v.over)
	t.Logf("%d audits, %d of them with money in transit", v.audits.Load(), v.moving.Load())
	require.Empty(t, l.b.MustAudit().Findings)
	l.audit()
}

// Audits under load find nothing.
// Meanwhile transfers run, are refused, cancelled and taken over, processes die at any
// command, and their messages arrive late.
// Balances and money in transit add up to the same sum in each audit, and no rule is seen
// broken.
func TestAuditUnderLoad(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var v *vigil
	l := newLoad(t, b, loadOptions{
		clients: 8, through: b.Through, faults: []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held},
		enough: func(c counts) bool {
			return v.audits.Load() >= 50 && v.moving.Load() >= 25 && c.Succeeded >= 100 && c.Refused >= 20 && c.RolledBack >= 5 &&
				c.Held >= 10 && c.Deaths >= 4 && c.Sweeps >= 5
		},
	})
	v = audited(ctx, b, b.NewCoordinator(b.DB), 4*opening)
	v.watch(l, stop)
}

// The same holds while primaries are replaced.
// A snapshot may be older then, and is consistent all the same.
func TestAuditUnderFailovers(t *testing.T) {
	t.Parallel()
	set, err := mongotest.StartSet(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	b := bank.NewReplicated(t, set, "audited")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const perFailover = 20
	var (
		v        *vigil
		l        *load
		replaced int
	)
	l = newLoad(t, b.Bank, loadOptions{
		clients: 6, through: b.Through, faults: []bank.Fault{bank.Lost, bank.AnswerLost},
		hurt: func(ctx context.Context) error {
			replaced++
			if !l.h.awaitSuccesses(ctx, replaced*perFailover) {
				return ctx.Err()
			}
			return b.Replace(ctx, replaced%2 == 0)
		},
		enough: func(c counts) bool {
			return v.audits.Load() >= 20 && v.moving.Load() >= 5 && c.Succeeded >= 50 && c.Failovers >= 2
		},
	})
	// The threshold is so short that a transfer which a failover delays seems to have
	// stalled, if an old primary is read.
	watcher := b.NewCoordinator(b.DB, transfer.WithStallThreshold(2*time.Second))
	v = audited(ctx, b.Bank, watcher, 4*opening)
	v.watch(l, stop)
}
