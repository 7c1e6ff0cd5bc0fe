package queries_test

import (
	"cmp"
	"fmt"
	"maps"
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
// idle, failed, a reversal, or posted and not finished, and the others have moved money.
// Each is one of the shop's, one of five is a payer's, and one of five hundred a guest's.
func planted(i int) bson.M {
	leg := func(account string, units int64) bson.M {
		return bson.M{"ledger": "", "ns": "x.accounts", "account": account, "amount": units}
	}
	t := bson.M{
		"_id": fmt.Sprintf("t%05d", i*7919%plantedTransfers), "state": "Success", "epoch": int64(1), "createdAt": plantedAt(i),
		"lastModified": time.Now(),
		"legs":         bson.A{leg(fmt.Sprint("payer", i%5), -2), leg("shop", 1), leg(fmt.Sprint("guest", i%500), 1)},
	}
	held := bson.M{"state": "Preparing", "open": true, "hold": true, "held": true, "expiresAt": plantedAt(i).Add(time.Hour)}
	switch i % 12 {
	case 0:
		maps.Copy(t, bson.M{"state": "Initiated", "open": true, "epoch": int64(0), "notBefore": time.Now().Add(time.Hour)})
	case 1:
		maps.Copy(t, held)
	case 2:
		maps.Copy(t, bson.M{"state": "Preparing", "open": true, "lastModified": time.Now().Add(-time.Hour)})
	case 3:
		maps.Copy(t, bson.M{"state": "Fail", "failure": bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "m"}})
	case 4:
		maps.Copy(t, bson.M{"reverses": fmt.Sprint("original", i%24), "committedAt": plantedAt(i)})
	case 5:
		maps.Copy(t, held)
		maps.Copy(t, bson.M{"state": "Committed", "committedAt": plantedAt(i)})
	default:
		maps.Copy(t, bson.M{"committedAt": plantedAt(i)})
	}
	return t
}

func isUnfinished(i int) bool { return i%12 <= 2 || i%12 == 5 }

// pageCase is a query, what it selects, and how many transfers the server may examine for
// each one on a page.
type pageCase struct {
	query   queries.Query
	selects func(i int) bool
	times   int
}

// pageCases are queries of which the server examines what they select, as an index has
// it, or what there is of all until a page is full.
func pageCases() map[string]pageCase {
	middle, early := plantedAt(plantedTransfers/2), plantedAt(plantedTransfers/24)
	kind := func(k int) func(int) bool { return func(i int) bool { return i%12 == k } }
	heldBefore := func(before time.Time) func(int) bool {
		return func(i int) bool { return i%12 == 1 && plantedAt(i).Before(before) }
	}
	in := func(states ...protocol.State) queries.Query { return queries.Query{States: states} }
	return map[string]pageCase{
		"all":               {queries.Query{}, func(int) bool { return true }, 1},
		"before":            {queries.Query{Before: middle}, func(i int) bool { return plantedAt(i).Before(middle) }, 1},
		"after":             {queries.Query{After: middle}, func(i int) bool { return plantedAt(i).After(middle) }, 1},
		"a busy account":    {queries.Query{Account: "shop"}, func(int) bool { return true }, 1},
		"an account":        {queries.Query{Account: "payer3"}, func(i int) bool { return i%5 == 3 }, 1},
		"a quiet account":   {queries.Query{Account: "guest7"}, func(i int) bool { return i%500 == 7 }, 1},
		"unfinished":        {queries.Query{Unfinished: true}, isUnfinished, 3},
		"unfinished states": {in(protocol.Initiated, protocol.Preparing, protocol.Committed, protocol.Rollback), isUnfinished, 3},
		"waiting":           {in(protocol.Initiated), kind(0), 12},
		"idle":              {queries.Query{IdleFor: 30 * time.Minute}, kind(2), 12},
		"held":              {queries.Query{Holds: true}, kind(1), 2},
		"expiring":          {queries.Query{ExpiresBefore: middle.Add(time.Hour)}, heldBefore(middle), 6},
		"few expiring":      {queries.Query{ExpiresBefore: early.Add(time.Hour)}, heldBefore(early), 1},
		"failed":            {in(protocol.Fail), kind(3), 1},
		"failed or failing": {in(protocol.Fail, protocol.Rollback), kind(3), 1},
		"reversals":         {queries.Query{Reverses: "original4"}, func(i int) bool { return i%24 == 4 }, 1},
		"no reversals":      {queries.Query{Reverses: "original5"}, func(int) bool { return false }, 0},
	}
}

// Pages of a list show each transfer once, in the order of the list, though many share a
// millisecond. For each page the server examines about what it shows, or, of what is
// found among others, what there is of these.
func TestPagesExamineWhatTheyShow(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var all []bson.M
	for i := range plantedTransfers {
		all = append(all, planted(i))
	}
	b.PutIn("transfers", all...)
	order := make([]int, plantedTransfers)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return -cmp.Or(plantedAt(i).Compare(plantedAt(j)), cmp.Compare(all[i]["_id"].(string), all[j]["_id"].(string)))
	})
	for name, c := range pageCases() {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, i := range order {
				if c.selects(i) {
					want = append(want, all[i]["_id"].(string))
				}
			}
			require.Equal(t, want, pagedThrough(t, b, c))
			n, err := b.Store.Count(t.Context(), c.query)
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
		})
	}
}

// A list of what is unfinished doesn't examine what is finished, however much that is and
// whichever is newer. Nor does a list of what has failed, or of an account, examine
// others.
func TestListsExamineNoOthers(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	const others, each = 5000, 12
	var all []bson.M
	for i := range each * 12 {
		all = append(all, planted(i))
	}
	unfinished := 0
	for i := range all {
		if isUnfinished(i) {
			unfinished++
		}
	}
	for i := range others {
		all = append(all, bson.M{
			"_id": fmt.Sprint("other", i), "state": "Success", "createdAt": plantedAt(plantedTransfers + i), "committedAt": time.Now(),
			"lastModified": time.Now().Add(-time.Hour),
			"legs":         bson.A{bson.M{"ledger": "", "ns": "x.accounts", "account": "another", "amount": int64(5)}},
		})
	}
	b.PutIn("transfers", all...)
	stuck := bson.M{"code": "unwritable", "ledger": "", "account": "", "message": "m"}
	b.Change("transfers", all[2]["_id"], bson.M{"$set": bson.M{"stuck": stuck}})
	states := func(states ...protocol.State) queries.Query { return queries.Query{States: states} }
	for name, c := range map[string]struct {
		query        queries.Query
		shows, among int
	}{
		"unfinished":          {queries.Query{Unfinished: true}, unfinished, unfinished},
		"idle":                {queries.Query{IdleFor: 30 * time.Minute}, each, unfinished},
		"stuck":               {queries.Query{Stuck: true}, 1, unfinished},
		"held":                {queries.Query{Holds: true}, each, 2 * each},
		"expiring":            {queries.Query{ExpiresBefore: plantedAt(plantedTransfers)}, 0, each},
		"all held, by expiry": {queries.Query{ExpiresBefore: time.Now().Add(time.Hour << 16)}, each, 2 * each},
		"waiting":             {states(protocol.Initiated), each, unfinished},
		"preparing":           {states(protocol.Preparing), 2 * each, unfinished},
		"failed":              {states(protocol.Fail), each, each},
		"reversals":           {queries.Query{Reverses: "original4"}, each / 2, each / 2},
		"an account":          {queries.Query{Account: "payer3"}, 29, 29},
		"nobody":              {queries.Query{Account: "nobody"}, 0, 0},
		"an account's unfinished": {
			queries.Query{Account: "payer3", Unfinished: true}, 9, unfinished,
		},
		"an account's reversals": {queries.Query{Account: "payer3", Reverses: "original4"}, 1, each / 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c.query.Limit = range []int{0, pageSize} {
				b.Log.Take()
				n := 0
				for _, err := range b.Store.List(t.Context(), c.query) {
					require.NoError(t, err)
					n++
				}
				assert.Equal(t, min(c.shows, cmp.Or(c.query.Limit, c.shows)), n)
				const around = 10 // where ranges begin and end
				find := b.Log.Take()[0]
				assert.LessOrEqual(t, b.Examined(find), int64(c.among+around), b.Explain(find))
			}
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
		require.LessOrEqual(t, len(ids), plantedTransfers, "no page is shown twice")
		finds := b.Log.Take()
		for _, find := range finds {
			if find.Name != "find" {
				continue
			}
			const around = 10 // where ranges begin and end
			most := int64(c.times*(pageSize+around) + around)
			assert.LessOrEqual(t, b.Examined(find), most, "%s\n%s", find.Body, b.Explain(find))
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
