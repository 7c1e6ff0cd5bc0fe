package transfer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// An expired hold can't be posted, whoever comes first: Post, Hold asked again, Recover or Run voids it.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bank) error{
		"Post": func(b *bank) error {
			_, err := b.Post(b.t.Context(), "h")
			return err
		},
		"Hold": func(b *bank) error {
			_, err := b.Hold(b.t.Context(), move("h", "a", "b", 60), time.Hour)
			return err
		},
		"Recover": func(b *bank) error {
			report, err := b.Recover(b.t.Context())
			require.NoError(b.t, err)
			require.Equal(b.t, transfer.RecoveryReport{Found: 1, Failed: 1, Expired: 1}, report)
			_, err = b.Wait(b.t.Context(), "h")
			return err
		},
		"Run": func(b *bank) error {
			ctx, cancel := context.WithCancel(b.t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = b.Run(ctx) })
			defer running.Wait()
			defer cancel()
			_, err := b.Wait(b.t.Context(), "h")
			return err
		},
	} {
		for _, stalled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stalled ", stalled), func(t *testing.T) {
				t.Parallel()
				b := newBank(t, 100, 0)
				b.expiredHold(stalled)
				require.ErrorIs(t, act(b), transfer.ErrExpired)
				rec, err := b.Void(t.Context(), "h")
				require.NoError(t, err)
				require.Equal(t, "expired", rec.Failure.Code)
				require.Equal(t, "nobody has decided it in time", rec.Failure.Message)
				require.Zero(t, rec.Attempts)
				b.standing("a", 100, 100, 0)
				b.audit(initial(100, 0))
			})
		}
	}
}

// expiredHold leaves hold h of 60 that has expired, be it before everything was held.
func (b *bank) expiredHold(stalled bool) {
	b.t.Helper()
	if stalled {
		b.stallHold("h", 3)
	} else {
		b.hold("h", 60, time.Hour)
	}
	b.expire("h")
}

// Void and Cancel of a hold that has expired say so, though no sweep has come by yet: whoever asks later is told the same as if one had.
func TestVoidAfterExpiry(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bank) (transfer.Record, error){
		"Void":   func(b *bank) (transfer.Record, error) { return b.Void(b.t.Context(), "h") },
		"Cancel": func(b *bank) (transfer.Record, error) { return b.Cancel(b.t.Context(), "h", "no longer wanted") },
	} {
		for _, stalled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stalled ", stalled), func(t *testing.T) {
				t.Parallel()
				b := newBank(t, 100, 0)
				b.expiredHold(stalled)
				for range 2 {
					rec, err := act(b)
					require.NoError(t, err)
					require.Equal(t, &transfer.Failure{Code: "expired", Message: "nobody has decided it in time"}, rec.Failure)
				}
				_, err := b.Post(t.Context(), "h")
				require.ErrorIs(t, err, transfer.ErrExpired)
				_, err = b.Hold(t.Context(), move("h", "a", "b", 60), time.Hour)
				require.ErrorIs(t, err, transfer.ErrExpired)
				_, err = b.Wait(t.Context(), "h")
				require.ErrorIs(t, err, transfer.ErrExpired)
				b.standing("a", 100, 100, 0)
				b.audit(initial(100, 0))
			})
		}
	}
}

// A worker voids a hold soon after it has expired, however rarely it sweeps for what has stalled.
func TestRunVoidsSoon(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.hold("h", 60, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a sweep comes once in 30 s
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	_, err := b.Wait(ctx, "h")
	require.ErrorIs(t, err, transfer.ErrExpired)
	b.audit(initial(100, 0))
}

// Recovery never takes a hold for stalled before it expires, whether everything is held or its process has died on the way there; the same
// Hold, asked again, goes on with it.
func TestRecoveryLeavesHoldsAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t, 200, 0)
	b.hold("h", 60, time.Hour)
	b.stallHold("stalled", 3)
	c := b.coordinator(b.db, transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report)
	rec, err := c.Hold(t.Context(), move("stalled", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, rec.State)
	b.standing("a", 80, 200, 0)
	for _, id := range []string{"h", "stalled"} {
		_, err := b.Post(t.Context(), id)
		require.NoError(t, err)
	}
	b.audit(initial(200, 0))
}

// A hold that somebody has decided as expired, and died, is one that ran out, whoever brings it to its end.
func TestExpiredIsCountedWhoeverDecided(t *testing.T) {
	t.Parallel()
	for n := 3; n <= 4; n++ { // the decision is made: one of the undo, one of the finish
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.hold("h", 60, time.Hour)
			b.expire("h")
			b.dying(n, lost, func(ctx context.Context, c *transfer.Coordinator) error {
				_, err := c.Post(ctx, "h")
				return err
			})
			rec, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			require.Equal(t, transfer.StateRollback, rec.State)
			report, err := b.coordinator(b.db, transfer.WithStallThreshold(0)).Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, transfer.RecoveryReport{Found: 1, Failed: 1, Expired: 1}, report)
			b.audit(initial(100, 0))
		})
	}
}

// expire makes a hold's time be over, behind the library's back.
func (b *bank) expire(id string) {
	b.t.Helper()
	past := bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: time.Now().Add(-time.Second)}}}}
	result, err := b.db.Collection("transfers").UpdateOne(b.t.Context(), bson.D{{Key: "_id", Value: id}}, past)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.ModifiedCount)
}
