package mongostore

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// found reports whether a search for what has stalled yields the transfer, readable or not.
func (b *bank) found(id string, threshold time.Duration) bool {
	b.t.Helper()
	n, err := b.db.Collection("transfers").CountDocuments(b.t.Context(), append(bson.D{{Key: "_id", Value: id}}, stalled(threshold)...))
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
			stored, found, err := b.store.GetTransfer(t.Context(), w.Transfer.ID)
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
			require.ErrorIs(t, err, ErrUnreadable)
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
		assert.Equal(t, longest.Milliseconds()*factor, stallMillis(longest, doublings(attempts, true)))
	}
	b := newBank(t)
	w := b.claimed("order", b.leg("alice", -60))
	w.Threshold = longest
	assert.False(t, b.found("order", longest))
	assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result)
}
