package overload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	transfer "github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// A client's messages are counted as the server gets them.
func TestCounts(t *testing.T) {
	t.Parallel()
	c := &counts{}
	db := mongotest.Database(t, options.Client().SetMonitor(c.commands()).SetPoolMonitor(c.pool()))
	things := db.Collection("things")
	_, err := things.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: 2}}})
	require.NoError(t, err)
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "note", Value: strings.Repeat("x", 5000)}}}}
	_, err = things.BulkWrite(t.Context(), []mongo.WriteModel{
		mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: 1}}).SetUpdate(set),
		mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: 2}}).SetUpdate(set),
	})
	require.NoError(t, err)
	both := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{1, 2}}}}}
	_, err = things.UpdateMany(t.Context(), both, bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "shared", Value: true}}}}})
	require.NoError(t, err)
	_, err = things.UpdateMany(t.Context(), both, set)
	require.NoError(t, err)
	require.NoError(t, things.FindOneAndUpdate(t.Context(), bson.D{{Key: "_id", Value: 1}}, set).Err())
	require.NoError(t, things.FindOne(t.Context(), bson.D{}).Err())
	require.EqualValues(t, 2, c.inserts.Load())
	require.EqualValues(t, 3+2+1, c.statements.Load())
	require.EqualValues(t, 1, c.finds.Load())
	require.Greater(t, c.largest.Load(), int64(10_000))
	require.EqualValues(t, 1, c.inFlight.peak.Load())
	require.Zero(t, c.inFlight.now.Load())
	require.EqualValues(t, 1, c.connections.now.Load())
	require.EqualValues(t, 1, c.inUse.peak.Load())
	require.Zero(t, c.inUse.now.Load())
}

// Each answer is counted by what it says about the money.
func TestTally(t *testing.T) {
	t.Parallel()
	var told tally
	told.take(nil, time.Second)
	told.take(transfer.ErrInDoubt, 2*time.Second)
	told.take(fmt.Errorf("%w: %w", transfer.ErrUnsettled, context.DeadlineExceeded), time.Second)
	told.take(context.DeadlineExceeded, 0)
	told.take(context.Canceled, 0)
	told.take(transfer.ErrClosed, 0)
	require.EqualValues(t, 1, told.done.Load())
	require.EqualValues(t, 2, told.doubt.Load())
	require.EqualValues(t, 2, told.unsent.Load())
	require.EqualValues(t, 1, told.odd.Load())
	require.ErrorIs(t, told.first, transfer.ErrClosed)
	require.EqualValues(t, 2*time.Second, told.longest.Load())
}

// A bound holds at its edge and not beyond it. A rate of zero is never good enough.
func TestBounds(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	s := &scene{report: &Report{out: &told}}
	s.atMost("n", 8, 8)
	s.keeps("rate", 100, 80, 0.8)
	s.within("time", time.Second, time.Second)
	s.share("share", 1, 100, 0.01)
	s.times("times", 199, 100, 2)
	s.flat("flat", []int64{0, 100, 0, 120}, 0, 1)
	s.note("told", "so")
	require.NoError(t, s.report.Err())
	s.atMost("n", 9, 8)
	s.keeps("rate", 100, 79, 0.8)
	s.keeps("no rate", 0, 100, 0.8)
	s.within("time", time.Second+1, time.Second)
	s.share("share", 2, 100, 0.01)
	s.times("times", 200, 100, 2)
	s.flat("flat", []int64{0, 100, 0, 121}, 0, 1)
	require.Len(t, s.report.Red(), 7)
	timed := slices.DeleteFunc(s.report.Red(), func(f Figure) bool { return !f.Timed })
	require.Len(t, timed, 4, "rates, times and shares depend on the machine")
	require.ErrorContains(t, s.report.Err(), "7 of 14 figures")
	require.Contains(t, told.String(), "DOES NOT HOLD: at most 8")
	s.Short = true
	s.keeps("rate", 100, 40, 0.8)
	s.within("time", 2*time.Second, time.Second)
	require.Len(t, s.report.Red(), 7)
}

// An invalid scenario is refused.
func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, Config{Only: []int{1, len(scenarios())}}.check())
	require.NoError(t, Config{Soak: shortestSoak}.check())
	require.Error(t, Config{Only: []int{0}}.check())
	require.Error(t, Config{Only: []int{len(scenarios()) + 1}}.check())
	require.Error(t, Config{Soak: time.Second}.check())
	for i, s := range scenarios() {
		require.Equal(t, i+1, s.number)
	}
}
