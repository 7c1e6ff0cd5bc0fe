package audit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// A time at which something has happened may be ahead of the clock that the audit has read, by ten minutes at most; one at which something
// will happen may be far ahead.
func TestTimesToCome(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for field, set := range map[string]func(t *mongostore.AuditTransfer, at time.Time){
		"createdAt":    func(t *mongostore.AuditTransfer, at time.Time) { t.CreatedAt = at },
		"lastModified": func(t *mongostore.AuditTransfer, at time.Time) { t.LastModified = at },
		"committedAt":  func(t *mongostore.AuditTransfer, at time.Time) { t.CommittedAt = at },
		"stuckAt":      func(t *mongostore.AuditTransfer, at time.Time) { t.StuckAt = at },
	} {
		later := now.Add(1000 * time.Hour)
		stored := mongostore.AuditTransfer{Transfer: mongostore.Transfer{NotBefore: later, ExpiresAt: later, PurgeAt: later}}
		set(&stored, now.Add(clockTolerance))
		require.Empty(t, wrongTime(&stored, now), field)
		set(&stored, now.Add(clockTolerance+time.Millisecond))
		require.Contains(t, wrongTime(&stored, now), field)
	}
}

// A transfer is overdue after ten thresholds: that is nine after recovery takes it over. So it is with one that recovery leaves alone for
// up to 64, because it was taken over often, and nobody knows why in vain. What is known to be stuck is overdue after ten all the same, and
// so is an expired hold, which is decided without waiting.
func TestOverdue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stuck := &mongostore.Failure{Code: "unwritable"}
	for _, row := range []struct {
		stored     mongostore.Transfer
		thresholds int
	}{
		{mongostore.Transfer{State: protocol.Preparing}, 10},
		{mongostore.Transfer{State: protocol.Committed, Attempts: 3}, 10},
		{mongostore.Transfer{State: protocol.Committed, Attempts: 4}, 11},
		{mongostore.Transfer{State: protocol.Rollback, Attempts: 6}, 17},
		{mongostore.Transfer{State: protocol.Preparing, Attempts: 9}, 73},
		{mongostore.Transfer{State: protocol.Preparing, Attempts: math.MaxInt64}, 73},
		{mongostore.Transfer{State: protocol.Rollback, Attempts: 9, Stuck: stuck}, 10},
		{mongostore.Transfer{State: protocol.Preparing, Attempts: 9, Hold: true, ExpiresAt: time.Unix(0, 0)}, 10},
	} {
		for _, threshold := range []time.Duration{time.Millisecond, time.Second, longestThreshold} {
			patience := time.Duration(row.thresholds) * threshold
			for _, late := range []bool{false, true} {
				stored := mongostore.AuditTransfer{Transfer: row.stored}
				stored.LastModified = now.Add(-patience)
				if late {
					stored.LastModified = stored.LastModified.Add(-time.Nanosecond)
				}
				_, overdue := overdue(&stored, now, threshold)
				require.Equal(t, late, overdue, "%+v, %s", row, threshold)
			}
		}
	}
	for attempts := range int64(10) {
		stored := mongostore.Transfer{State: protocol.Committed, Attempts: attempts, LastModified: now.Add(-1000 * time.Hour)}
		_, is := overdue(&mongostore.AuditTransfer{Transfer: stored}, now, math.MaxInt64)
		require.False(t, is, "a threshold of any length, after %d takeovers", attempts)
	}
}
