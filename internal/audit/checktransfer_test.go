package audit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// A time at which something has happened may be ahead of the clock that the audit has
// read by ten minutes at most, and that at which an event is due by twenty. A time at
// which something else will happen may be far ahead.
func TestTimesToCome(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for field, set := range map[string]func(t *Transfer, at time.Time){
		"createdAt":    func(t *Transfer, at time.Time) { t.CreatedAt = at },
		"lastModified": func(t *Transfer, at time.Time) { t.LastModified = at },
		"committedAt":  func(t *Transfer, at time.Time) { t.CommittedAt = at },
		"stuckAt":      func(t *Transfer, at time.Time) { t.StuckAt = at },
	} {
		later := now.Add(1000 * time.Hour)
		stored := Transfer{Transfer: document.Transfer{NotBefore: later, ExpiresAt: later, PurgeAt: later}}
		set(&stored, now.Add(clockTolerance))
		require.Empty(t, wrongTime(&stored, now), field)
		set(&stored, now.Add(clockTolerance+time.Millisecond))
		require.Contains(t, wrongTime(&stored, now), field)
	}
	for _, late := range []time.Duration{0, time.Millisecond} {
		due := now.Truncate(time.Millisecond).Add(20*time.Minute + late)
		outbox := wire.RawValue(bson.A{bson.D{{Key: "kind", Value: "succeeded"}, {Key: "due", Value: due}}})
		stored := Transfer{Transfer: document.Transfer{Outbox: outbox}}
		require.Equal(t, late > 0, wrongTime(&stored, now.Truncate(time.Millisecond)) != "")
	}
}

// A transfer is overdue after ten thresholds, which is nine after recovery takes it over.
// A transfer that recovery leaves alone for up to 64 thresholds, because it was taken
// over often for no known reason, is overdue nine after that. One that is known to be
// stuck is overdue after ten, and so is an expired hold, which recovery decides without
// waiting.
func TestOverdue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stuck := &document.Failure{Code: "unwritable"}
	for _, row := range []struct {
		stored     document.Transfer
		thresholds int
	}{
		{document.Transfer{State: protocol.Preparing}, 10},
		{document.Transfer{State: protocol.Committed, Attempts: 3}, 10},
		{document.Transfer{State: protocol.Committed, Attempts: 4}, 11},
		{document.Transfer{State: protocol.Rollback, Attempts: 6}, 17},
		{document.Transfer{State: protocol.Preparing, Attempts: 9}, 73},
		{document.Transfer{State: protocol.Preparing, Attempts: math.MaxInt64}, 73},
		{document.Transfer{State: protocol.Rollback, Attempts: 9, Stuck: stuck}, 10},
		{document.Transfer{State: protocol.Preparing, Attempts: 9, Hold: true, ExpiresAt: time.Unix(0, 0)}, 10},
	} {
		for _, threshold := range []time.Duration{time.Millisecond, time.Second, longestThreshold} {
			patience := time.Duration(row.thresholds) * threshold
			for _, late := range []bool{false, true} {
				stored := Transfer{Transfer: row.stored}
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
		stored := document.Transfer{State: protocol.Committed, Attempts: attempts, LastModified: now.Add(-1000 * time.Hour)}
		_, is := overdue(&Transfer{Transfer: stored}, now, math.MaxInt64)
		require.False(t, is, "a threshold of any length, after %d takeovers", attempts)
	}
}
