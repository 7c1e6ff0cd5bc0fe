package queries_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// searched reports whether a search for stalled transfers selects the transfer, even if
// it can't be decoded.
func searched(b *storetest.Bank, id string, threshold time.Duration) bool {
	b.T.Helper()
	filter := append(bson.D{{Key: "_id", Value: id}}, document.Stalled(threshold)...)
	n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), filter)
	require.NoError(b.T, err)
	return n == 1
}

// The first takeover comes after one threshold. If the transfer is stuck, each takeover
// doubles the time to the next, up to 64 thresholds. If only the processes that worked on
// it were lost, the doubling begins after the third. The search, the takeover itself and
// the guess of a waiting caller agree. A threshold of zero waits for nothing.
func TestTakeOversBackOff(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for i, row := range []struct {
		attempts any
		stuck    bool
		hours    int
	}{
		{nil, true, 1}, {int64(0), true, 1}, {int64(1), true, 2}, {int32(2), true, 4}, {int64(3), true, 8}, {int64(4), true, 16},
		{int64(5), true, 32}, {int64(6), true, 64}, {int64(7), true, 64}, {int64(1 << 40), true, 64}, {int64(-1), true, 1}, {3.0, true, 8},
		{nil, false, 1}, {int64(1), false, 1}, {int64(3), false, 1}, {int64(4), false, 2}, {int32(5), false, 4}, {int64(8), false, 32},
		{int64(9), false, 64}, {int64(1 << 40), false, 64}, {int64(math.MinInt64), false, 1},
	} {
		for _, due := range []bool{false, true} {
			a := b.Claimed(fmt.Sprint(i, due), b.Leg("alice", -60))
			since := time.Now().Add(-time.Duration(row.hours) * time.Hour).Add(time.Minute)
			if due {
				since = since.Add(-time.Minute - time.Second)
			}
			fields := bson.M{"lastModified": since}
			if row.attempts != nil {
				fields["attempts"] = row.attempts
			}
			if row.stuck {
				fields["stuck"] = bson.M{"code": "accountNotFound"}
			}
			b.Change("transfers", a.Transfer.ID, bson.M{"$set": fields})
			stored, found, err := b.Store.ReadTransfer(t.Context(), a.Transfer.ID)
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, due, b.Store.LooksStalled(t.Context(), stored, time.Hour), "%+v, %s", row, since)
			assert.Equal(t, due, searched(b, a.Transfer.ID, time.Hour), "%+v, %s", row, since)
			assert.True(t, searched(b, a.Transfer.ID, 0))
			assert.True(t, b.Store.LooksStalled(t.Context(), stored, 0))
			a.Threshold = time.Hour
			result := b.On(a, storetest.Claim(protocol.TakeOver)).Result
			assert.Equal(t, due, result == protocol.Applied, "%+v, %s: %s", row, since, result)
			if !due {
				a.Threshold = 0
				assert.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.TakeOver)).Result)
			}
		}
	}
}

// A count of takeovers that another program has made something other than a number fails
// neither the search nor the recovery of other transfers.
func TestOddAttemptsFailNoSearch(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	notANumber, err := bson.ParseDecimal128("NaN")
	require.NoError(t, err)
	for i, odd := range []any{
		"many", math.NaN(), math.Inf(1), bson.A{}, bson.M{"a": 1}, notANumber, true, bson.MaxKey{}, bson.MinKey{}, nil,
	} {
		id := fmt.Sprint("odd", i)
		b.Claimed(id, b.Leg("alice", -60))
		b.Change("transfers", id, bson.M{"$set": bson.M{"attempts": odd, "lastModified": time.Now().Add(-100 * time.Hour)}})
		assert.True(t, searched(b, id, time.Hour), "%v: it is found after 64 thresholds at the latest", odd)
	}
	b.Claimed("fine", b.Leg("alice", -60))
	b.Change("transfers", "fine", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-2 * time.Hour)}})
	fine := false
	for transfer, err := range b.Store.Stalled(t.Context(), time.Hour) {
		if err != nil {
			require.ErrorIs(t, err, document.ErrUnreadable)
		}
		fine = fine || transfer.ID == "fine"
	}
	assert.True(t, fine)
}

// A threshold of any size can be doubled six times.
func TestLongThresholds(t *testing.T) {
	t.Parallel()
	longest := time.Duration(math.MaxInt64)
	for attempts, factor := range map[int64]int64{0: 1, 1: 2, 6: 64, 7: 64, math.MaxInt64: 64, -5: 1} {
		assert.Equal(t, longest.Milliseconds()*factor, document.StallMillis(longest, document.Doublings(attempts, true)))
	}
	b := storetest.New(t)
	a := b.Claimed("order", b.Leg("alice", -60))
	a.Threshold = longest
	assert.False(t, searched(b, "order", longest))
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeOver)).Result)
}

// A server's clock may be set back. A transfer that was modified further ahead than the
// threshold stands still, as one does that was modified longer ago. One that is ahead by
// less does not. How often it was taken over doesn't matter there: a takeover stamps the
// clock as it is now. The search, the takeovers and the guess of a waiting caller agree.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var want []string
	for i, row := range []struct {
		ahead    time.Duration
		attempts int64
		due      bool
	}{
		{time.Minute, 0, false}, {time.Minute, 9, false}, {time.Hour - time.Minute, 0, false}, {time.Hour - time.Minute, 9, false},
		{time.Hour + time.Minute, 0, true}, {time.Hour + time.Minute, 9, true}, {100000 * time.Hour, 0, true},
	} {
		plain, hold := b.Claimed(fmt.Sprint("t", i), b.Leg("alice", -60)), holding(b, fmt.Sprint("h", i), b.Leg("alice", -60))
		for _, a := range []*mongostore.Attempt{plain, hold} {
			changes := bson.M{"lastModified": time.Now().Add(row.ahead), "attempts": row.attempts}
			b.Change("transfers", a.Transfer.ID, bson.M{"$set": changes})
			stored, found, err := b.Store.ReadTransfer(t.Context(), a.Transfer.ID)
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, row.due, b.Store.LooksStalled(t.Context(), stored, time.Hour), "%+v", row)
			assert.True(t, b.Store.LooksStalled(t.Context(), stored, 0))
		}
		assert.Equal(t, row.due, searched(b, "t"+fmt.Sprint(i), time.Hour), "%+v", row)
		if row.due {
			want = append(want, plain.Transfer.ID)
		}
	}
	assert.ElementsMatch(t, want, stalledIDs(b, time.Hour))
	assert.Len(t, stalledIDs(b, 0), 7)
	const notDue = "%d was not due, or was taken over just now"
	for i := range 7 {
		due := i >= 4
		plain, hold := taker(b, fmt.Sprint("t", i), time.Hour), taker(b, fmt.Sprint("h", i), time.Hour)
		assert.Equal(t, due, b.On(plain, storetest.Claim(protocol.TakeOver)).Result == protocol.Applied, i)
		assert.Equal(t, due, b.On(hold, storetest.Claim(protocol.TakeUnheld)).Result == protocol.Applied, i)
		plain, hold = taker(b, fmt.Sprint("t", i), time.Hour), taker(b, fmt.Sprint("h", i), time.Hour)
		assert.Equal(t, protocol.NotMatched, b.On(plain, storetest.Claim(protocol.TakeOver)).Result, notDue, i)
		assert.Equal(t, protocol.NotMatched, b.On(hold, storetest.Claim(protocol.TakeUnheld)).Result, notDue, i)
	}
	assert.Empty(t, stalledIDs(b, time.Hour))
	plain, hold := taker(b, "t0", 0), taker(b, "h0", 0)
	assert.Equal(t, protocol.Applied, b.On(plain, storetest.Claim(protocol.TakeOver)).Result, "with a threshold of zero everything is due")
	assert.Equal(t, protocol.Applied, b.On(hold, storetest.Claim(protocol.TakeUnheld)).Result)
}

// taker returns another process's attempt at a transfer of alice's that is stored
// already.
func taker(b *storetest.Bank, id string, threshold time.Duration) *mongostore.Attempt {
	b.T.Helper()
	a := b.Attempt(id, b.Leg("alice", -60))
	a.Owner, a.Threshold = "another", threshold
	return a
}

// stalledIDs returns the IDs that a search for stalled transfers finds.
func stalledIDs(b *storetest.Bank, threshold time.Duration) []string {
	b.T.Helper()
	var ids []string
	for transfer, err := range b.Store.Stalled(b.T.Context(), threshold) {
		require.NoError(b.T, err)
		ids = append(ids, transfer.ID)
	}
	return ids
}

// A lastModified that another program has made something other than a date fails no
// search. The transfer is found on whichever side of all dates it sorts, and a takeover
// gives it a date again.
func TestOddLastModifiedIsFound(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for i, odd := range []any{"now", int64(1), bson.Timestamp{T: 1}, bson.MaxKey{}, bson.MinKey{}, nil, bson.A{}} {
		a := b.Claimed(fmt.Sprint(i), b.Leg("alice", -60))
		b.Change("transfers", a.Transfer.ID, bson.M{"$set": bson.M{"lastModified": odd}})
		assert.True(t, searched(b, a.Transfer.ID, time.Hour), "%v", odd)
		a.Threshold = time.Hour
		assert.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.TakeOver)).Result, "%v", odd)
		assert.False(t, searched(b, a.Transfer.ID, time.Hour), "%v", odd)
	}
}

// holding returns an attempt at a hold of an hour that it has stored.
func holding(b *storetest.Bank, id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	a := b.Attempt(id, legs...)
	a.Transfer.Hold, a.HoldFor = true, time.Hour
	b.Applied(a, storetest.Claim(protocol.Insert))
	return a
}
