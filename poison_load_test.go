package transfer_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// Hundreds of transfers that can't be finished hold up the recovery of the others neither when they are first met, nor later, when they are
// hardly ever tried. How fast that is depends on what else the machine does: so commands are counted, in which they are named or not, and
// between two sweeps no time has to pass.
func TestPoisonHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const half = 500
	b := newBank(t, 3*half, 0, 0)
	sweep := func(want transfer.RecoveryReport) (commands, poisoned int64) {
		var all, some atomic.Int64
		c := b.coordinator(b.through(named("poisoned", &all, &some)), transfer.WithStallThreshold(time.Hour))
		begun := time.Now()
		report, err := c.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, report)
		t.Logf("%d found, %d of them stuck: %d commands, %d of them with poisoned ones, %s",
			report.Found, report.Stuck, all.Load(), some.Load(), time.Since(begun))
		return all.Load(), some.Load()
	}
	b.leaveCommitted("poisoned", "c", half)
	repair := deleted("c")(b)
	b.leaveCommitted("fine", "b", half)
	commands, poisoned := sweep(transfer.RecoveryReport{Found: 2 * half, Succeeded: half, Stuck: half})
	require.Positive(t, poisoned)
	require.Less(t, commands, int64(half), "they share commands: of those that each needs not one is its own")
	b.standStill("poisoned", half) // for longer than others wait, and not for as long as these do
	b.leaveCommitted("more", "b", half)
	_, poisoned = sweep(transfer.RecoveryReport{Found: half, Succeeded: half})
	require.Zero(t, poisoned, "they are not looked at")
	require.Len(t, b.ids(transfer.Query{Stuck: true}), half)
	repair()
	require.Equal(t, half, b.recoverAll().Succeeded)
	b.audit(initial(3*half, 0, 0))
}

// named returns the options of a client whose commands are counted, and of them those with a text in them.
func named(text string, all, some *atomic.Int64) *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "hello" || e.CommandName == "endSessions" {
			return
		}
		all.Add(1)
		if bytes.Contains(e.Command, []byte(text)) {
			some.Add(1)
		}
	}})
}

// leaveCommitted leaves transfers of 1 from a behind whose process has died after they were committed, ninety minutes ago.
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
	open := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}}}}
	_, err := b.db.Collection("transfers").UpdateMany(b.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, open)
	require.NoError(b.t, err)
	b.standStill(prefix, n)
}

// standStill lets nothing have happened to so many transfers for ninety minutes.
func (b *bank) standStill(prefix string, n int) {
	b.t.Helper()
	ago := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", (90 * time.Minute).Milliseconds()}}}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: numbered(prefix, n)}}}}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "lastModified", Value: ago}}}}}
	result, err := b.db.Collection("transfers").UpdateMany(b.t.Context(), filter, update)
	require.NoError(b.t, err)
	require.EqualValues(b.t, n, result.MatchedCount)
}
