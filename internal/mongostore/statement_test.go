package mongostore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
)

// moment is a millisecond of the history that these tests make up.
func moment(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)).UTC() }

// past returns a committed transfer as it is stored, with legs on alice, on an account of that name in another ledger, and on bob.
func past(id string, at time.Time, units int64) bson.M {
	leg := func(ledger, account string, units int64) bson.M {
		return bson.M{"ledger": ledger, "ns": "x.y", "account": account, "amount": units}
	}
	return bson.M{"_id": id, "state": "Success", "createdAt": at, "committedAt": at, "legs": bson.A{
		leg("eu", "alice", -2*units), leg("", "alice", units), leg("", "bob", units),
	}}
}

func (b *bank) history(id string) *history.History {
	b.t.Helper()
	h, err := b.store.History("", id)
	require.NoError(b.t, err)
	return h
}

// However long the pages are, they put together the same history, in either order, and no millisecond is on two of them.
func TestPagesOfAHistory(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	var all []string
	var documents []bson.M
	for ms, n := range []int{1, 3, 2, 5, 1, 1, 4} {
		for i := range n {
			id := fmt.Sprintf("%d.%d", ms, i)
			documents = append(documents, past(id, moment(ms), int64(1+i)))
			all = append(all, id)
		}
	}
	b.putIn("transfers", documents...)
	b.putIn("transfers", bson.M{"_id": "open", "state": "Preparing", "legs": past("", moment(0), 1)["legs"]})
	for n := 1; n <= len(all)+1; n++ {
		require.Equal(t, all, b.pages(history.OldestFirst, n), "pages of %d", n)
		back := b.pages(history.NewestFirst, n)
		slices.Reverse(back)
		require.Equal(t, all, back, "pages of %d", n)
	}
	page, more, err := b.history("alice").Page(t.Context(), history.NewestFirst, moment(1), moment(3), 100)
	require.NoError(t, err)
	require.False(t, more)
	want := []history.Entry{
		{TransferID: "2.1", Amount: money.Units(2), At: moment(2)}, {TransferID: "2.0", Amount: money.Units(1), At: moment(2)},
	}
	require.Equal(t, want, page)
	page, more, err = b.history("alice").Page(t.Context(), history.OldestFirst, moment(1), moment(3), 100)
	require.NoError(t, err)
	require.False(t, more)
	slices.Reverse(want)
	require.Equal(t, want, page)
}

// pages puts together alice's history from pages of n.
func (b *bank) pages(order history.Order, n int) (all []string) {
	b.t.Helper()
	after, before := time.Time{}, moment(100)
	for more := true; more; {
		var page []history.Entry
		var err error
		page, more, err = b.history("alice").Page(b.t.Context(), order, after, before, n)
		require.NoError(b.t, err)
		require.True(b.t, !more || len(page) >= n, "a page of %d has %d entries and is not the last", n, len(page))
		for _, e := range page {
			require.True(b.t, e.At.Before(before) && e.At.After(after))
			all = append(all, e.TransferID)
		}
		if last := page[len(page)-1].At; order == history.OldestFirst {
			after = last
		} else {
			before = last
		}
	}
	return all
}

// Whatever a statement asks for is found by an index, in its order: nothing is looked through, and nothing sorted.
func TestHistoryUsesItsIndex(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	var documents []bson.M
	for i := range 3000 {
		documents = append(documents, past(fmt.Sprint("t", i), moment(i), 1))
		other := past(fmt.Sprint("other", i), moment(i), 1)
		other["legs"] = bson.A{bson.M{"ledger": "", "ns": "x.y", "account": "bob", "amount": int64(1)}}
		documents = append(documents, other)
	}
	b.putIn("transfers", documents...)
	b.put(account("alice", bson.M{"pending": bson.M{"t7": int64(1), "t8": int64(1)}}))
	b.log.take()
	h := b.history("alice")
	_, found, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	require.True(t, found)
	for _, c := range []struct {
		order history.Order
		after time.Time
		first string
	}{
		{history.NewestFirst, time.Time{}, "t2499"}, {history.NewestFirst, moment(20), "t2499"},
		{history.OldestFirst, time.Time{}, "t0"}, {history.OldestFirst, moment(20), "t21"},
	} {
		page, _, err := h.Page(t.Context(), c.order, c.after, moment(2500), 100)
		require.NoError(t, err)
		require.Len(t, page, 100)
		require.Equal(t, c.first, page[0].TransferID)
	}
	finds := 0
	for _, c := range b.log.take() {
		if c.name != "find" || c.text("find") != "transfers" {
			continue
		}
		finds++
		plan := b.explain(c)
		assert.NotContains(t, plan, "COLLSCAN", c.body)
		assert.NotContains(t, plan, `"SORT"`, c.body)
		if c.body.Lookup("filter", "_id").Type != 0 {
			assert.Contains(t, plan, `"_id_"`, c.body)
			continue
		}
		assert.Contains(t, plan, `"indexName": "committed"`, c.body)
		assert.Contains(t, plan, `"legs.account": ["[\"alice\", \"alice\"]"],"legs.ledger": ["[\"\", \"\"]"]`, c.body)
		if order, sorted := c.body.Lookup("sort", "committedAt").AsInt64OK(); sorted {
			assert.Contains(t, plan, map[int64]string{1: `"forward"`, -1: `"backward"`}[order], c.body)
			assert.NotContains(t, plan, "MinKey", "the bounds of the time are the index's, too")
		}
	}
	require.Equal(t, 7, finds, "the operation time, what is in flight, what came since, four pages")
}

// A history that holds what is no exact number is not told, and neither is one of another kind than the balance.
func TestHistoryOfOddNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		amount any
		posted any
	}{
		"a double":          {1.0, nil},
		"a text":            {"1", nil},
		"nothing":           {nil, nil},
		"a part as double":  {int64(1), 1.0},
		"a part as a fault": {int64(1), bson.M{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			odd := past("odd", moment(1), 0)
			odd["legs"] = bson.A{bson.M{"ledger": "", "account": "alice", "amount": c.amount}}
			if c.posted != nil {
				odd["posted"] = c.posted
			}
			b.putIn("transfers", past("t", moment(2), 1), odd)
			b.put(account("alice", bson.M{"pending": bson.M{"odd": int64(1)}}))
			_, _, err := b.history("alice").Page(t.Context(), history.NewestFirst, time.Time{}, moment(10), 10)
			require.ErrorIs(t, err, document.ErrUnreadable)
			_, _, err = b.history("alice").BalanceAsOf(t.Context(), time.Time{})
			require.ErrorIs(t, err, document.ErrUnreadable)
		})
	}
	b := newBank(t)
	decimal, err := money.Parse("1.5")
	require.NoError(t, err)
	b.putIn("transfers", past("t", moment(2), 1))
	for name, changes := range map[string]bson.M{
		"double": {"balance": 1.5}, "mixed": {"pending": bson.M{"x": decimal.Value()}}, "debit": {"pending": bson.M{"x": decimal.Neg().Value()}},
		"alice": {"balance": decimal.Value(), "pending": bson.M{"t": decimal.Value()}},
	} {
		b.put(account(name, changes))
		_, found, err := b.history(name).BalanceAsOf(t.Context(), time.Time{})
		require.ErrorIs(t, err, history.ErrKind, name)
		require.True(t, found)
	}
}

// The transfers in flight on an account are known by their markers, whatever their IDs look like.
func TestMarkersNameTheirTransfers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	pending, sum := bson.M{"%zz": int64(0)}, int64(0) // the first is no transfer's
	for id, key := range awkwardIDs() {
		if document.CheckID(id) != nil {
			continue
		}
		b.putIn("transfers", past(id, moment(1), 1))
		pending[key] = int64(1)
		sum++
	}
	b.put(account("alice", bson.M{"pending": pending}))
	closing, _, err := b.history("alice").BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, money.Units(100+sum), closing.Balance, "they are committed, and so they count")
	require.Greater(t, sum, int64(5))
}
