package mongostore

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// found reports whether a search for what has stalled yields the transfer, readable or not.
func (b *bank) found(id string, threshold time.Duration) bool {
	b.t.Helper()
	n, err := b.db.Collection("transfers").CountDocuments(b.t.Context(), append(bson.D{{Key: "_id", Value: id}}, document.Stalled(threshold)...))
	require.NoError(b.t, err)
	return n == 1
}

// The first takeover comes after one threshold. Of what is stuck each one doubles the time to the next, up to 64 thresholds; of what only
// lost those who worked on it, those after the third. The search, the takeover itself and the guess of a waiting caller agree. With a
// threshold of zero nothing is waited for.
func TestTakeOversBackOff(t *testing.T) {
	t.Parallel()
	b := newBank(t)
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
			w := b.claimed(fmt.Sprint(i, due), b.leg("alice", -60))
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
			b.change("transfers", w.Transfer.ID, bson.M{"$set": fields})
			stored, found, err := b.store.ReadTransfer(t.Context(), w.Transfer.ID)
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, due, b.store.LooksStalled(t.Context(), stored, time.Hour), "%+v, %s", row, since)
			assert.Equal(t, due, b.found(w.Transfer.ID, time.Hour), "%+v, %s", row, since)
			assert.True(t, b.found(w.Transfer.ID, 0))
			assert.True(t, b.store.LooksStalled(t.Context(), stored, 0))
			w.Threshold = time.Hour
			result := b.on(w, claim(protocol.TakeOver)).Result
			assert.Equal(t, due, result == protocol.Applied, "%+v, %s: %s", row, since, result)
			if !due {
				w.Threshold = 0
				assert.Equal(t, protocol.Applied, b.on(w, claim(protocol.TakeOver)).Result)
			}
		}
	}
}

// Takeovers that somebody has made something else than a number fail neither the search nor the recovery of others.
func TestOddAttemptsFailNoSearch(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, odd := range []any{
		"many", math.NaN(), math.Inf(1), bson.A{}, bson.M{"a": 1}, decimal("NaN"), true, bson.MaxKey{}, bson.MinKey{}, nil,
	} {
		id := fmt.Sprint("odd", i)
		b.claimed(id, b.leg("alice", -60))
		b.change("transfers", id, bson.M{"$set": bson.M{"attempts": odd, "lastModified": time.Now().Add(-100 * time.Hour)}})
		assert.True(t, b.found(id, time.Hour), "%v: it is told after 64 thresholds at the latest", odd)
	}
	b.claimed("fine", b.leg("alice", -60))
	b.change("transfers", "fine", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-2 * time.Hour)}})
	fine := false
	for transfer, err := range b.store.Stalled(t.Context(), time.Hour) {
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
	b := newBank(t)
	w := b.claimed("order", b.leg("alice", -60))
	w.Threshold = longest
	assert.False(t, b.found("order", longest))
	assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result)
}

// A server's clock may be set back: what was modified further ahead than the threshold stands still,
// as what was modified longer ago does. What is ahead by less does not, and how often it was taken
// over doesn't matter: a takeover stamps the clock as it is now. The search, the takeovers and the guess
// of a waiting caller agree.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	var want []string
	for i, row := range []struct {
		ahead    time.Duration
		attempts int64
		due      bool
	}{
		{time.Minute, 0, false}, {time.Minute, 9, false}, {time.Hour - time.Minute, 0, false}, {time.Hour - time.Minute, 9, false},
		{time.Hour + time.Minute, 0, true}, {time.Hour + time.Minute, 9, true}, {100000 * time.Hour, 0, true},
	} {
		plain, hold := b.claimed(fmt.Sprint("t", i), b.leg("alice", -60)), b.holding(fmt.Sprint("h", i), b.leg("alice", -60))
		for _, w := range []*Attempt{plain, hold} {
			changes := bson.M{"lastModified": time.Now().Add(row.ahead), "attempts": row.attempts}
			b.change("transfers", w.Transfer.ID, bson.M{"$set": changes})
			stored, found, err := b.store.ReadTransfer(t.Context(), w.Transfer.ID)
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, row.due, b.store.LooksStalled(t.Context(), stored, time.Hour), "%+v", row)
			assert.True(t, b.store.LooksStalled(t.Context(), stored, 0))
		}
		assert.Equal(t, row.due, b.found("t"+fmt.Sprint(i), time.Hour), "%+v", row)
		if row.due {
			want = append(want, plain.Transfer.ID)
		}
	}
	assert.ElementsMatch(t, want, b.stalledIDs(time.Hour))
	assert.Len(t, b.stalledIDs(0), 7)
	for i := range 7 {
		due := i >= 4
		plain, hold := b.taker(fmt.Sprint("t", i), time.Hour), b.taker(fmt.Sprint("h", i), time.Hour)
		assert.Equal(t, due, b.on(plain, claim(protocol.TakeOver)).Result == protocol.Applied, i)
		assert.Equal(t, due, b.on(hold, claim(protocol.TakeUnheld)).Result == protocol.Applied, i)
		plain, hold = b.taker(fmt.Sprint("t", i), time.Hour), b.taker(fmt.Sprint("h", i), time.Hour)
		assert.Equal(t, protocol.NotMatched, b.on(plain, claim(protocol.TakeOver)).Result, "%d was not due, or was taken over just now", i)
		assert.Equal(t, protocol.NotMatched, b.on(hold, claim(protocol.TakeUnheld)).Result, "%d was not due, or was taken over just now", i)
	}
	assert.Empty(t, b.stalledIDs(time.Hour))
	plain, hold := b.taker("t0", 0), b.taker("h0", 0)
	assert.Equal(t, protocol.Applied, b.on(plain, claim(protocol.TakeOver)).Result, "with a threshold of zero everything is due")
	assert.Equal(t, protocol.Applied, b.on(hold, claim(protocol.TakeUnheld)).Result)
}

// taker returns a work of somebody else on a transfer of alice's that is stored already.
func (b *bank) taker(id string, threshold time.Duration) *Attempt {
	b.t.Helper()
	w := b.work(id, b.leg("alice", -60))
	w.Owner, w.Threshold = "another", threshold
	return w
}

// stalledIDs returns what a search for stalled transfers finds.
func (b *bank) stalledIDs(threshold time.Duration) []string {
	b.t.Helper()
	var ids []string
	for transfer, err := range b.store.Stalled(b.t.Context(), threshold) {
		require.NoError(b.t, err)
		ids = append(ids, transfer.ID)
	}
	return ids
}

// A lastModified that somebody has made something else than a date fails no search: the transfer is found
// whichever side of all dates it sorts on, and taken over it has a date again.
func TestOddLastModifiedIsFound(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, odd := range []any{"now", int64(1), bson.Timestamp{T: 1}, bson.MaxKey{}, bson.MinKey{}, nil, bson.A{}} {
		w := b.claimed(fmt.Sprint(i), b.leg("alice", -60))
		b.change("transfers", w.Transfer.ID, bson.M{"$set": bson.M{"lastModified": odd}})
		assert.True(t, b.found(w.Transfer.ID, time.Hour), "%v", odd)
		w.Threshold = time.Hour
		assert.Equal(t, protocol.Applied, b.on(w, claim(protocol.TakeOver)).Result, "%v", odd)
		assert.False(t, b.found(w.Transfer.ID, time.Hour), "%v", odd)
	}
}
