package queries_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

const (
	pageSize = 50
	// plantedTransfers is how many transfers are stored, and shareMillisecond how many of
	// them were created in the same millisecond.
	plantedTransfers, shareMillisecond = 6000, 40
)

// plantedAt returns when a planted transfer was created.
func plantedAt(i int) time.Time {
	return time.UnixMilli(1_800_000_000_000 + int64(i/shareMillisecond))
}

// planted returns a transfer of a collection in which one of twelve is scheduled, held,
// idle, failed, or a reversal, and the others have moved money.
func planted(i int) bson.M {
	t := bson.M{
		"_id": fmt.Sprintf("t%05d", i*7919%plantedTransfers), "state": "Success", "epoch": int64(1), "createdAt": plantedAt(i),
		"lastModified": time.Now(), "legs": bson.A{
			bson.M{"ledger": "", "ns": "x.accounts", "account": fmt.Sprint("payer", i%5), "amount": int64(-1)},
			bson.M{"ledger": "", "ns": "x.accounts", "account": "shop", "amount": int64(1)},
		},
	}
	change := func(fields bson.M) {
		for key, value := range fields {
			t[key] = value
		}
	}
	switch i % 12 {
	case 0:
		change(bson.M{"state": "Initiated", "open": true, "epoch": int64(0), "notBefore": time.Now().Add(time.Hour)})
	case 1:
		change(bson.M{"state": "Preparing", "open": true, "hold": true, "held": true, "expiresAt": plantedAt(i).Add(time.Hour)})
	case 2:
		change(bson.M{"state": "Preparing", "open": true, "lastModified": time.Now().Add(-time.Hour)})
	case 3:
		change(bson.M{"state": "Fail", "failure": bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "m"}})
	case 4:
		change(bson.M{"reverses": fmt.Sprint("original", i%24), "committedAt": plantedAt(i)})
	default:
		change(bson.M{"committedAt": plantedAt(i)})
	}
	return t
}

// pageCase is a query, what it selects, and how much the server may examine for each
// transfer of a page.
type pageCase struct {
	query   queries.Query
	selects func(t bson.M, i int) bool
	times   int
}

func pageCases() map[string]pageCase {
	middle := plantedAt(plantedTransfers / 2)
	unfinished := func(_ bson.M, i int) bool { return i%12 <= 2 }
	kind := func(k int) func(bson.M, int) bool { return func(_ bson.M, i int) bool { return i%12 == k } }
	return map[string]pageCase{
		"all":    {queries.Query{}, func(bson.M, int) bool { return true }, 1},
		"before": {queries.Query{Before: middle}, func(t bson.M, _ int) bool { return t["createdAt"].(time.Time).Before(middle) }, 1},
		"after":  {queries.Query{After: middle}, func(t bson.M, _ int) bool { return t["createdAt"].(time.Time).After(middle) }, 1},
		"an account": {
			queries.Query{Account: "payer3"}, func(_ bson.M, i int) bool { return i%5 == 3 }, 1,
		},
		"an account of all": {queries.Query{Account: "shop"}, func(bson.M, int) bool { return true }, 1},
		"unfinished":        {queries.Query{Unfinished: true}, unfinished, 1},
		"unfinished states": {
			queries.Query{States: []protocol.State{protocol.Initiated, protocol.Preparing, protocol.Committed, protocol.Rollback}}, unfinished, 1,
		},
		"waiting":  {queries.Query{States: []protocol.State{protocol.Initiated}}, kind(0), 4},
		"held":     {queries.Query{Holds: true}, kind(1), 4},
		"idle":     {queries.Query{IdleFor: time.Minute}, kind(2), 4},
		"failed":   {queries.Query{States: []protocol.State{protocol.Fail, protocol.Rollback}}, kind(3), 1},
		"reversal": {queries.Query{Reverses: "original4"}, func(_ bson.M, i int) bool { return i%24 == 4 }, 1},
		"expiring": {
			queries.Query{ExpiresBefore: middle.Add(time.Hour)},
			func(t bson.M, i int) bool { return i%12 == 1 && t["createdAt"].(time.Time).Before(middle) }, 6,
		},
		"few expiring": {
			queries.Query{ExpiresBefore: plantedAt(240).Add(time.Hour)},
			func(t bson.M, i int) bool { return i%12 == 1 && t["createdAt"].(time.Time).Before(plantedAt(240)) }, 2,
		},
	}
}

// Pages of a list show each transfer once, in the order of the list, though many share a
// millisecond. For each page the server examines about what the page has, whatever the
// query selects; and for what is a third of the unfinished, these.
func TestPagesExamineWhatTheyShow(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var all []bson.M
	for i := range plantedTransfers {
		all = append(all, planted(i))
	}
	b.PutIn("transfers", all...)
	for name, c := range pageCases() {
		t.Run(name, func(t *testing.T) {
			var want []bson.M
			for i, transfer := range all {
				if c.selects(transfer, i) {
					want = append(want, transfer)
				}
			}
			require.NotEmpty(t, want)
			slices.SortFunc(want, func(x, y bson.M) int {
				return -cmp.Or(x["createdAt"].(time.Time).Compare(y["createdAt"].(time.Time)), cmp.Compare(x["_id"].(string), y["_id"].(string)))
			})
			ids := make([]string, len(want))
			for i, transfer := range want {
				ids[i] = transfer["_id"].(string)
			}
			require.Equal(t, ids, pagedThrough(t, b, c))
			n, err := b.Store.Count(t.Context(), c.query)
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
		})
	}
}

// pagedThrough returns the IDs on all pages of a list.
func pagedThrough(t *testing.T, b *storetest.Bank, c pageCase) []string {
	t.Helper()
	var ids []string
	for query := c.query; ; {
		query.Limit = pageSize
		b.Log.Take()
		n := 0
		for transfer, err := range b.Store.List(t.Context(), query) {
			require.NoError(t, err)
			ids = append(ids, transfer.ID)
			n++
		}
		require.LessOrEqual(t, n, pageSize)
		finds := b.Log.Take()
		for _, find := range finds {
			if find.Name != "find" {
				continue
			}
			const around = 10 // where a range ends, and where several begin
			assert.LessOrEqual(t, b.Examined(find), int64(c.times*pageSize+around), "%s\n%s", find.Body, b.Explain(find))
			if c.times == 1 {
				assert.NotContains(t, b.Explain(find), `"stage": "SORT"`, find.Body)
			}
		}
		if n == 0 {
			return ids
		}
		place, found, err := b.Store.PlaceOf(t.Context(), ids[len(ids)-1])
		require.NoError(t, err)
		require.True(t, found)
		query.Beyond = &place
	}
}

// A place in a list is that of a transfer that is stored, and has a time.
func TestPlaces(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	at := time.UnixMilli(1_800_000_000_000)
	b.PutIn("transfers", bson.M{"_id": "t", "createdAt": at}, bson.M{"_id": "timeless"},
		bson.M{"_id": "text", "createdAt": "now"}, bson.M{"_id": "year 1", "createdAt": time.Time{}})
	place, found, err := b.Store.PlaceOf(t.Context(), "t")
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, at.Equal(place.Created))
	require.Equal(t, "t", place.ID)
	_, found, err = b.Store.PlaceOf(t.Context(), "nobody")
	require.NoError(t, err)
	require.False(t, found)
	for _, id := range []string{"timeless", "text", "year 1"} {
		_, _, err = b.Store.PlaceOf(t.Context(), id)
		require.ErrorIs(t, err, document.ErrUnreadable, id)
	}
}
