package transfer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// Hundreds of transfers that can't be finished hold up the recovery of the others neither when they are first met, nor later, when they are
// hardly ever tried. Commands are counted, and the times told.
func TestPoisonHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const half = 500
	sweep := func(b *bank, want transfer.RecoveryReport) int64 {
		var commands atomic.Int64
		c := b.coordinator(b.through(counted(&commands)))
		begun := time.Now()
		report, err := c.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, report)
		t.Logf("%d found, %d of them stuck: %d commands, %s", report.Found, report.Stuck, commands.Load(), time.Since(begun))
		return commands.Load()
	}
	healthy := newBank(t, half, 0)
	healthy.leaveCommitted("fine", "b", half)
	alone := sweep(healthy, transfer.RecoveryReport{Found: half, Succeeded: half})
	healthy.audit(initial(half, 0))

	b := newBank(t, 3*half, 0, 0)
	b.leaveCommitted("poisoned", "c", half)
	repair := deleted("c")(b)
	b.leaveCommitted("fine", "b", half)
	first := sweep(b, transfer.RecoveryReport{Found: 2 * half, Succeeded: half, Stuck: half})
	require.LessOrEqual(t, first, 6*alone+50, "they share commands")
	b.leaveCommitted("more", "b", half)
	second := sweep(b, transfer.RecoveryReport{Found: half, Succeeded: half})
	require.LessOrEqual(t, second, alone+alone/2+10, "the others are not looked at")
	require.Len(t, b.ids(transfer.Query{Stuck: true}), half)
	repair()
	require.Equal(t, half, b.recoverAll().Succeeded)
	b.audit(initial(3*half, 0, 0))
}

// leaveCommitted leaves transfers of 1 from a behind whose process has died after they were committed, a minute ago.
func (b *bank) leaveCommitted(prefix, to string, n int) {
	b.t.Helper()
	requests := make([]transfer.Request, n)
	markers := [2]bson.D{{}, {}}
	ids := numbered(prefix, n)
	for i, id := range ids {
		requests[i] = move(id, "a", to, 1)
		for side, amount := range []int64{-1, 1} {
			markers[side] = append(markers[side], bson.E{Key: "pending." + id, Value: amount})
		}
	}
	_, failures := b.TransferMany(b.t.Context(), requests)
	for _, err := range failures {
		require.NoError(b.t, err)
	}
	for side, account := range []string{"a", to} {
		taken := bson.D{{Key: "balance", Value: int64(-side * n)}} // what was paid in is not there yet
		update := bson.D{{Key: "$set", Value: markers[side]}, {Key: "$inc", Value: taken}}
		_, err := b.db.Collection("accounts").UpdateByID(b.t.Context(), account, update)
		require.NoError(b.t, err)
	}
	ago := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", time.Minute.Milliseconds()}}}
	open := bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}, {Key: "lastModified", Value: ago}}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	_, err := b.db.Collection("transfers").UpdateMany(b.t.Context(), filter, mongo.Pipeline{{{Key: "$set", Value: open}}})
	require.NoError(b.t, err)
}
