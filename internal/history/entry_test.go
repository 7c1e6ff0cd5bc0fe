package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Pages of any length add up to the same history, in either order, and no millisecond is
// on two of them.
func TestPagesOfAHistory(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var all []string
	var documents []bson.M
	for ms, n := range []int{1, 3, 2, 5, 1, 1, 4} {
		for i := range n {
			id := fmt.Sprintf("%d.%d", ms, i)
			documents = append(documents, past(id, moment(ms), int64(1+i)))
			all = append(all, id)
		}
	}
	b.PutIn("transfers", documents...)
	b.PutIn("transfers", bson.M{"_id": "open", "state": "Preparing", "legs": past("", moment(0), 1)["legs"]})
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
		{TransferID: "2.1", Amount: money.Units(2), At: moment(2), Legs: pastLegs(2)},
		{TransferID: "2.0", Amount: money.Units(1), At: moment(2), Legs: pastLegs(1)},
	}
	require.Equal(t, want, page)
	amounts, more, err := b.history("alice").Amounts(t.Context(), history.NewestFirst, moment(1), moment(3), 100)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, amounts, len(want))
	for i, e := range want {
		e.Legs = nil
		require.Equal(t, e, amounts[i])
	}
	page, more, err = b.history("alice").Page(t.Context(), history.OldestFirst, moment(1), moment(3), 100)
	require.NoError(t, err)
	require.False(t, more)
	slices.Reverse(want)
	require.Equal(t, want, page)
}

// pastLegs returns the legs of a transfer that past makes.
func pastLegs(units int64) []document.Leg {
	leg := func(ledger, account string, units int64) document.Leg {
		return document.Leg{Ledger: ledger, Namespace: "x.y", Account: account, Amount: money.Units(units)}
	}
	return []document.Leg{leg("eu", "alice", -2*units), leg("", "alice", units), leg("", "bob", units)}
}

// A page of large transfers has fewer of them, and nothing is left out.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	const n, textBytes = 400, 60_000
	var documents []bson.M
	for i := range n {
		transfer := past(fmt.Sprintf("t%03d", i), moment(i/2), 1)
		transfer["metadata"] = bson.M{"text": strings.Repeat("x", textBytes)}
		documents = append(documents, transfer)
	}
	b.PutIn("transfers", documents...)
	after, seen, largest := time.Time{}, 0, 0
	for more := true; more; {
		var page []history.Entry
		var err error
		page, more, err = b.history("alice").Page(t.Context(), history.OldestFirst, after, moment(n), n)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		for _, e := range page {
			require.Equal(t, fmt.Sprintf("t%03d", seen), e.TransferID)
			require.Len(t, e.Metadata.Lookup("text").StringValue(), textBytes)
			seen++
		}
		after, largest = page[len(page)-1].At, max(largest, len(page))
	}
	require.Equal(t, n, seen)
	require.LessOrEqual(t, largest, 17<<20/textBytes)
	amounts, more, err := b.history("alice").Amounts(t.Context(), history.OldestFirst, time.Time{}, moment(n), n)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, amounts, n, "of which the metadata is not read")
}

// pages returns the IDs of alice's history, read by pages of n.
func (b *bank) pages(order history.Order, n int) (all []string) {
	b.T.Helper()
	after, before := time.Time{}, moment(100)
	for more := true; more; {
		var page []history.Entry
		var err error
		page, more, err = b.history("alice").Page(b.T.Context(), order, after, before, n)
		require.NoError(b.T, err)
		require.True(b.T, !more || len(page) >= n, "a page of %d has %d entries and is not the last", n, len(page))
		for _, e := range page {
			require.True(b.T, e.At.Before(before) && e.At.After(after))
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

// putThousands stores transfers of alice, and others. With several names of the ledger
// some of alice's are under another one.
func (b *bank) putThousands(severalNames bool) {
	b.T.Helper()
	if severalNames {
		b.PutIn("transfers.transfer", recordedAs("europe", "x.y", b.identity()), recordedAs("", "z.z", "another"))
	}
	var documents []bson.M
	for i := range 3000 {
		one := past(fmt.Sprint("t", i), moment(i), 1)
		if severalNames && i%3 == 0 {
			one["legs"].(bson.A)[1].(bson.M)["ledger"] = "europe"
		}
		documents = append(documents, one)
		other := past(fmt.Sprint("other", i), moment(i), 1)
		other["legs"] = bson.A{bson.M{"ledger": "", "ns": "x.y", "account": "bob", "amount": int64(1)}}
		documents = append(documents, other)
	}
	b.PutIn("transfers", documents...)
}

// Every read of a statement uses an index and its order: no collection is scanned, and
// nothing is sorted.
func TestHistoryUsesItsIndex(t *testing.T) {
	t.Parallel()
	for _, severalNames := range []bool{false, true} {
		t.Run(fmt.Sprintf("several names=%v", severalNames), func(t *testing.T) {
			t.Parallel()
			usesItsIndex(t, severalNames)
		})
	}
}

func usesItsIndex(t *testing.T, severalNames bool) {
	t.Helper()
	b := newBank(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	b.putThousands(severalNames)
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"t7": int64(1), "t8": int64(1)}}))
	b.Log.Take()
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
	for _, c := range b.Log.Take() {
		if c.Name != "find" || c.Text("find") != "transfers" {
			continue
		}
		finds++
		plan := b.Explain(c)
		assert.NotContains(t, plan, "COLLSCAN", c.Body)
		assert.NotContains(t, plan, `"SORT"`, c.Body)
		if c.Body.Lookup("filter", "_id").Type != 0 {
			assert.Contains(t, plan, `"_id_"`, c.Body)
			continue
		}
		assert.Contains(t, plan, `"indexName": "committed"`, c.Body)
		assert.Contains(t, plan, `"legs.account": ["[\"alice\", \"alice\"]"],"legs.ledger": ["[\"\", \"\"]"`, c.Body)
		if order, sorted := c.Body.Lookup("sort", "committedAt").AsInt64OK(); sorted {
			assert.Contains(t, plan, map[int64]string{1: `"forward"`, -1: `"backward"`}[order], c.Body)
			assert.NotContains(t, plan, "MinKey", "the bounds of the time are the index's, too")
		}
	}
	require.Equal(t, 7, finds, "the operation time, what is in flight, what came since, four pages")
}

// A history with an amount that is not an exact number, or not of the balance's kind, is
// an error.
func TestHistoryOfOddNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		amount any
		posted any
	}{
		"a double":          {1.0, nil},
		"a text":            {"1", nil},
		"nothing":           {nil, nil},
		"none at all":       {nil, nil},
		"a part as double":  {int64(1), 1.0},
		"a part as a fault": {int64(1), bson.M{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			odd := past("odd", moment(1), 0)
			leg := bson.M{"ledger": "", "account": "alice"}
			if name != "none at all" {
				leg["amount"] = c.amount
			}
			odd["legs"] = bson.A{leg}
			if c.posted != nil {
				odd["posted"] = c.posted
			}
			b.PutIn("transfers", past("t", moment(2), 1), odd)
			b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"odd": int64(1)}}))
			_, _, err := b.history("alice").Page(t.Context(), history.NewestFirst, time.Time{}, moment(10), 10)
			require.ErrorIs(t, err, document.ErrUnreadable)
			_, _, err = b.history("alice").Amounts(t.Context(), history.NewestFirst, time.Time{}, moment(10), 10)
			require.ErrorIs(t, err, document.ErrUnreadable)
			_, _, err = b.history("alice").BalanceAsOf(t.Context(), time.Time{})
			require.ErrorIs(t, err, document.ErrUnreadable)
		})
	}
	b := newBank(t)
	decimal, err := money.Parse("1.5")
	require.NoError(t, err)
	b.PutIn("transfers", past("t", moment(2), 1))
	for name, changes := range map[string]bson.M{
		"double": {"balance": 1.5}, "mixed": {"pending": bson.M{"x": decimal.Value()}}, "debit": {"pending": bson.M{"x": decimal.Neg().Value()}},
		"alice": {"balance": decimal.Value(), "pending": bson.M{"t": decimal.Value()}},
	} {
		b.Put(storetest.Account(name, changes))
		_, found, err := b.history(name).BalanceAsOf(t.Context(), time.Time{})
		require.ErrorIs(t, err, history.ErrKind, name)
		require.True(t, found)
	}
}

// The transfers in flight on an account are known by their markers, whatever characters
// their IDs have.
func TestMarkersNameTheirTransfers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	pending, sum := bson.M{"%zz": int64(0)}, int64(0)
	for id, key := range storetest.AwkwardIDs() {
		if document.CheckID(id) != nil {
			continue
		}
		b.PutIn("transfers", past(id, moment(1), 1))
		pending[key] = int64(1)
		sum++
	}
	b.Put(storetest.Account("alice", bson.M{"pending": pending}))
	balance, _, err := b.history("alice").BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, money.Units(100+sum), balance.Balance, "they are committed, and so they count")
	require.Greater(t, sum, int64(30))
}

// An account whose markers are no map has no balance at any instant: it is not known what
// is in flight.
func TestGarbledMarkers(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for what, pending := range storetest.Garbled("order", int64(-60)) {
		b.Put(storetest.Account(what, bson.M{"pending": pending}))
		_, found, err := b.history(what).BalanceAsOf(t.Context(), time.Time{})
		assert.True(t, found)
		require.ErrorIs(t, err, history.ErrKind, what)
	}
}
