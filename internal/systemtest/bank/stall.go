package bank

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// Dying calls a verb in a process that dies at a step. Its coordinator has the given
// options, made of its database.
func (b *Bank) Dying(
	at Step, what Fault, verb func(context.Context, *transfer.Coordinator) error, opts ...func(*mongo.Database) []transfer.Option,
) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), eventually)
	defer cancel()
	w := &Wire{Is: at.Selector(), What: what, Die: true, OnDeath: cancel}
	b.Wires = append(b.Wires, w)
	db := b.Through(w.Client())
	defer End(db.Client())
	var all, healthy []transfer.Option
	for _, more := range opts {
		all, healthy = append(all, more(db)...), append(healthy, more(b.DB)...)
	}
	if len(opts) > 0 { // so that the process that dies is not the first that uses these collections
		require.NoError(b.T, b.NewCoordinator(b.DB, healthy...).Setup(ctx))
	}
	c := b.NewCoordinator(db, all...)
	err := verb(ctx, c)
	Kill(c)
	RequireUnended(b.T, err)
	require.True(b.T, w.HasStruck(), "%s did not come: %v", at, w.SentSoFar())
}

// StallAt leaves a transfer behind whose process died at a step. At the [Settles] that
// are lost, the record got through.
func (b *Bank) StallAt(id string, at Step, what Fault, units int64) {
	b.T.Helper()
	b.StallRequest(Move(id, "a", "b", units), at, what)
}

// StallRequest is [Bank.StallAt] for any transfer.
func (b *Bank) StallRequest(req transfer.Request, at Step, what Fault) {
	b.T.Helper()
	if at == Settles && what == Lost {
		b.stallUnpaid(req)
		return
	}
	b.Dying(at, what, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, req)
		return err
	})
}

// stallUnpaid leaves a transfer behind whose record is stored, and whose settles never
// arrived: its process died when the record was stored.
func (b *Bank) stallUnpaid(req transfer.Request) {
	b.T.Helper()
	w := &Wire{Is: Settles.Selector(), What: Swallowed}
	c := b.NewCoordinator(b.Through(w.Client()))
	ctx, cancel := context.WithTimeout(b.T.Context(), eventually)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Transfer(ctx, req)
		answer <- err
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !w.HasStruck() || b.RawTransfer(req.ID).State != "Committed" {
		select {
		case err := <-answer:
			require.FailNow(b.T, "the call has ended before", "%v: %v, %v", w.SentSoFar(), b.RawTransfer(req.ID), err)
		case <-again.C:
		}
	}
	w.Cut()
	cancel()
	Kill(c)
	RequireUnended(b.T, Within(b.T, answer))
}

// StallHalf leaves a transfer behind whose process died while it was prepared: the money
// is taken off a, and b knows nothing.
func (b *Bank) StallHalf(id string, units int64) {
	b.T.Helper()
	b.StallHalfOf(Move(id, "a", "b", units))
}

// StallHalfOf is [Bank.StallHalf] for any transfer from a to b.
func (b *Bank) StallHalfOf(req transfer.Request) {
	b.T.Helper()
	b.StallRequest(req, Decision, Lost)
	b.Change("accounts", "b", bson.M{"$unset": bson.M{"pending." + req.ID: ""}})
}

// RequireUnended requires the answer to a call that was cut short: in doubt, or committed
// for good, and not settled yet.
func RequireUnended(t *testing.T, err error) {
	t.Helper()
	inDoubt, committed := errors.Is(err, transfer.ErrInDoubt), errors.Is(err, transfer.ErrUnsettled)
	require.NotEqual(t, inDoubt, committed, "%v", err)
}

// StallHold holds 60 of a for b in a process that dies at a step, which is lost.
func (b *Bank) StallHold(id string, at Step) {
	b.T.Helper()
	b.Dying(at, Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Hold(ctx, Move(id, "a", "b", 60), time.Hour)
		return err
	})
}

// LeaveCommitted leaves n transfers of 1 from a behind whose process died after they were
// committed, ninety minutes ago.
func (b *Bank) LeaveCommitted(prefix, to string, n int) {
	b.T.Helper()
	requests := make([]transfer.Request, n)
	markers := [2]bson.D{{}, {}}
	ids := Numbered(prefix, n)
	for i, id := range ids {
		requests[i] = Move(id, "a", to, 1)
		for side, amount := range []int64{-1, 1} {
			markers[side] = append(markers[side], bson.E{Key: "pending." + id, Value: amount})
		}
	}
	_, failures := b.TransferMany(b.T.Context(), requests)
	for _, err := range failures {
		require.NoError(b.T, err)
	}
	for side, account := range []string{"a", to} {
		taken := bson.D{{Key: "balance", Value: int64(-side * n)}} // what was paid in is not there yet
		update := bson.D{{Key: "$set", Value: markers[side]}, {Key: "$inc", Value: taken}}
		_, err := b.DB.Collection("accounts").UpdateByID(b.T.Context(), account, update)
		require.NoError(b.T, err)
	}
	open := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "open", Value: true}}}}
	_, err := b.DB.Collection("transfers").UpdateMany(b.T.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, open)
	require.NoError(b.T, err)
	b.StandStill(prefix, n)
}

// StandStill makes n transfers look as if nothing had happened to them for ninety
// minutes.
func (b *Bank) StandStill(prefix string, n int) {
	b.T.Helper()
	ago := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", (90 * time.Minute).Milliseconds()}}}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: Numbered(prefix, n)}}}}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "lastModified", Value: ago}}}}}
	result, err := b.DB.Collection("transfers").UpdateMany(b.T.Context(), filter, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, n, result.MatchedCount)
}

// Plant stores n copies of a transfer, with changes and without some fields.
func (b *Bank) Plant(id string, n int, changes bson.M, but ...string) (ids []string) {
	b.T.Helper()
	var document bson.M
	require.NoError(b.T, b.DB.Collection("transfers").FindOne(b.T.Context(), bson.M{"_id": id}).Decode(&document))
	maps.Copy(document, changes)
	for _, field := range but {
		delete(document, field)
	}
	for i := range n {
		ids = append(ids, fmt.Sprint(id, "-", i))
	}
	for some := range slices.Chunk(ids, 10_000) { // a million copies at once would not fit
		copies := make([]any, len(some))
		for i, id := range some {
			copied := maps.Clone(document)
			copied["_id"] = id
			copies[i] = copied
		}
		b.Insert("transfers", copies...)
	}
	return ids
}

// Silence makes a transfer look as if nothing had happened to it for so long.
func (b *Bank) Silence(id string, d time.Duration) {
	b.T.Helper()
	ago := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", d.Milliseconds()}}}
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "lastModified", Value: ago}}}}}
	result, err := b.DB.Collection("transfers").UpdateByID(b.T.Context(), id, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.MatchedCount)
}

// ThresholdsAgo is a time some default thresholds ago, and a second.
func ThresholdsAgo(thresholds int) time.Time {
	return time.Now().Add(-time.Duration(thresholds)*30*time.Second - time.Second)
}

// Expire makes a hold's time be over, behind the library's back.
func (b *Bank) Expire(id string) {
	b.T.Helper()
	past := bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: time.Now().Add(-time.Second)}}}}
	result, err := b.DB.Collection("transfers").UpdateOne(b.T.Context(), bson.D{{Key: "_id", Value: id}}, past)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.ModifiedCount)
}

// ExpireAll makes the time of all holds be over, behind the library's back.
func (b *Bank) ExpireAll() {
	b.T.Helper()
	past := bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: time.Now().Add(-time.Hour)}}}}
	_, err := b.DB.Collection("transfers").UpdateMany(b.T.Context(), bson.D{{Key: "hold", Value: true}}, past)
	require.NoError(b.T, err)
}
