package collections_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Through a mongos the clocks of the shards are read. The earliest of them closes the
// past, and all have to pass the latest of an earlier reading.
func TestClocksOfShards(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	before, err := collections.Hello(t.Context(), b.Store.Transfers)
	require.NoError(t, err)
	b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), true)
	b.Log.Take()
	shown, err := b.Store.Clocks(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"aggregate"}, storetest.Names(b.Log.Take()))
	require.False(t, shown.Earliest.Before(before.LocalTime))
	require.Equal(t, shown.Earliest, shown.Latest, "there is one")
	clocks := func(earliest, latest int) collections.Clocks {
		return collections.Clocks{Earliest: moment(earliest), Latest: moment(latest)}
	}
	for _, ms := range []int{5, 3, 9, 4} {
		shown = clocks(4, 4).With(moment(ms)).With(moment(5))
		require.Equal(t, clocks(min(4, ms), max(5, ms)), shown)
		require.Equal(t, ms == 9, clocks(ms, 10).Passed(clocks(1, 5)))
	}
	b.Put(storetest.Account("alice", nil))
	h, err := b.Store.History("", "alice")
	require.NoError(t, err)
	_, found, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	require.True(t, found)
}

// moment returns the time of a number of milliseconds.
func moment(ms int) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// The clock that is read stamps the commits.
// It shows no later time before a commit than the commit's, and no earlier one after it.
// A server that stamped by a coarser clock would store commits in a past that is closed.
func TestCommitsAreStampedByTheShownClock(t *testing.T) {
	t.Parallel()
	for _, routed := range []bool{false, true} {
		b := storetest.New(t)
		require.NoError(t, b.Store.Setup(t.Context()))
		b.Store.CheckedClients.Store(b.Store.Transfers.Database().Client(), routed)
		b.PutIn("transfers", bson.M{"_id": "t"})
		for range 200 {
			first, err := b.Store.Clocks(t.Context())
			require.NoError(t, err)
			b.Change("transfers", "t", bson.M{"$currentDate": bson.M{"committedAt": true}, "$inc": bson.M{"n": 1}})
			second, err := b.Store.Clocks(t.Context())
			require.NoError(t, err)
			stamped := b.Raw("transfers", "t").Lookup("committedAt").Time()
			require.False(t, stamped.Before(first.Earliest))
			require.False(t, stamped.After(second.Latest))
		}
	}
}
