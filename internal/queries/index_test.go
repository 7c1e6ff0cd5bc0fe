package queries_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// The search for stalled transfers reads the index of unfinished work, which does not
// contain finished transfers.
func TestStalledUsesThePartialIndex(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	for _, state := range []protocol.State{
		protocol.Initiated, protocol.Preparing, protocol.Committed, protocol.Rollback, protocol.Success, protocol.Fail,
	} {
		b.Claimed(string(state), b.Leg("alice", -60))
		b.Change("transfers", string(state), bson.M{"$set": bson.M{"state": state, "lastModified": time.Now().Add(-time.Hour)}})
		if state.Final() {
			b.Change("transfers", string(state), bson.M{"$unset": bson.M{"open": ""}})
		}
	}
	b.Claimed("fresh", b.Leg("alice", -60))
	for threshold, want := range map[time.Duration][]string{
		time.Hour: {"Committed", "Preparing", "Rollback"}, 2 * time.Hour: nil, 0: {"Committed", "Preparing", "Rollback", "fresh"},
	} {
		b.Log.Take()
		var found []string
		for transfer, err := range b.Store.Stalled(t.Context(), threshold) {
			require.NoError(t, err)
			found = append(found, transfer.ID)
		}
		slices.Sort(found)
		assert.Equal(t, want, found, threshold)
		find := b.Log.Take()[0]
		plan := b.Explain(find)
		assert.Contains(t, plan, `"indexName": "unfinished"`)
		assert.NotContains(t, plan, "COLLSCAN")
	}
}

// Holds that are overdue, and those that expire soon, are found by their time.
// However many are held for longer, posted, or being posted, no others are examined.
func TestOverdueHoldsAreFoundByTheirTime(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	now := time.Now()
	var all []bson.M
	plant := func(n int, name string, in time.Duration, more bson.M) {
		for i := range n {
			hold := bson.M{
				"_id": fmt.Sprint(name, i), "state": "Preparing", "open": true, "hold": true, "held": true, "epoch": int64(1),
				"createdAt": now.Add(-24 * time.Hour), "lastModified": now, "expiresAt": now.Add(in),
			}
			maps.Copy(hold, more)
			all = append(all, hold)
		}
	}
	plant(3, "overdue", -time.Hour, nil)
	plant(2, "soon", time.Minute, nil)
	plant(1000, "held", time.Hour, nil)
	plant(500, "settling", -time.Hour, bson.M{"state": "Committed", "committedAt": now})
	plant(500, "posted", -time.Hour, bson.M{"state": "Success", "committedAt": now, "open": false})
	b.PutIn("transfers", all...)
	b.Change("transfers", "overdue2", bson.M{"$unset": bson.M{"held": ""}}) // it was never held
	for before, want := range map[time.Time][]string{
		now:                       {"overdue0", "overdue1"},
		now.Add(30 * time.Minute): {"overdue0", "overdue1", "soon0", "soon1"},
	} {
		for _, limit := range []int{0, 50} {
			b.Log.Take()
			var found []string
			for transfer, err := range b.Store.List(t.Context(), queries.Query{ExpiresBefore: before, Limit: limit}) {
				require.NoError(t, err)
				found = append(found, transfer.ID)
			}
			slices.Sort(found)
			assert.Equal(t, want, found)
			find := b.Log.Take()[0]
			const around = 5 // where ranges begin and end
			assert.LessOrEqual(t, b.Examined(find), int64(len(want)+1+around), b.Explain(find))
			assert.Contains(t, b.Explain(find), `"indexName": "holds"`)
		}
	}
}

// The library has no index of metadata: a list reads the newest transfers until it has
// found enough. An index of the user's, in the order that the documentation names, both
// finds and sorts.
func TestListByMetadata(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var transfers []any
	for i := range 1000 {
		transfers = append(transfers, bson.M{"_id": fmt.Sprint(i), "state": "Success", "createdAt": time.Now(),
			"metadata": bson.M{"order": int32(i / 2)}})
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), transfers)
	require.NoError(t, err)
	metadata, err := bson.Marshal(bson.M{"order": 17})
	require.NoError(t, err)
	list := func() *storetest.Command {
		b.Log.Take()
		n := 0
		for _, err := range b.Store.List(t.Context(), queries.Query{Metadata: metadata}) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
		return b.Log.Take()[0]
	}
	find := list()
	assert.Contains(t, b.Explain(find), `"indexName": "created"`)
	assert.NotContains(t, b.Explain(find), `"stage": "SORT"`)
	assert.EqualValues(t, 1000, b.Examined(find))
	index := mongo.IndexModel{Keys: bson.D{{Key: "metadata.order", Value: 1}, {Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}}
	_, err = b.DB.Collection("transfers").Indexes().CreateOne(t.Context(), index)
	require.NoError(t, err)
	assert.NotContains(t, b.Explain(find), `"stage": "SORT"`)
	assert.EqualValues(t, 2, b.Examined(list()))
}
