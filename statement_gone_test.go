package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// untilGone collects what a statement yields before its error.
func (b *bank) untilGone(id string, q transfer.StatementQuery) (entries []transfer.Entry, err error) {
	b.t.Helper()
	for e, failure := range b.Statement(b.t.Context(), id, q) {
		require.NoError(b.t, err, "nothing comes after an error")
		if err = failure; err == nil {
			entries = append(entries, e)
		}
	}
	requireChain(b.t, q, entries)
	return entries, err
}

// Who asks for no more than what is kept is told no error. Who asks for more is told that it is gone: at once, or newest first after what
// is kept. What may have gaps is not told, even if some of it is still there.
func TestHistoryGone(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	var at []time.Time
	for _, id := range []string{"1", "2", "3", "4"} {
		_, err := b.Transfer(t.Context(), move(id, "a", "b", 10))
		require.NoError(t, err)
		at = append(at, b.committed(id))
		require.Eventually(t, func() bool { return time.Since(at[len(at)-1]) > 5*time.Millisecond }, time.Minute, time.Millisecond)
	}
	const ms = time.Millisecond
	b.PurgedBefore(at[1].Add(-ms / 2))
	for _, c := range []struct {
		query transfer.StatementQuery
		want  []string
		gone  bool
	}{
		{transfer.StatementQuery{}, nil, true},
		{transfer.StatementQuery{Limit: 1}, nil, true},
		{transfer.StatementQuery{After: at[1].Add(-ms)}, []string{"2 -10 80", "3 -10 70", "4 -10 60"}, false},
		{transfer.StatementQuery{After: at[1].Add(-ms), Limit: 1}, []string{"2 -10 80"}, false},
		{transfer.StatementQuery{After: at[1].Add(-ms - 1)}, nil, true},
		{transfer.StatementQuery{Before: at[2]}, nil, true},
		{transfer.StatementQuery{Before: at[0].Add(-ms)}, nil, true},
		{transfer.StatementQuery{NewestFirst: true}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{NewestFirst: true, Limit: 3}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, false},
		{transfer.StatementQuery{NewestFirst: true, Limit: 4}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{NewestFirst: true, After: at[1].Add(-ms)}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, false},
		{transfer.StatementQuery{NewestFirst: true, After: at[1].Add(-ms - 1)}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{NewestFirst: true, Before: at[2]}, []string{"2 -10 80"}, true},
		{transfer.StatementQuery{NewestFirst: true, Before: at[1]}, nil, true},
		{transfer.StatementQuery{NewestFirst: true, Before: at[0].Add(-ms)}, nil, true},
	} {
		entries, err := b.untilGone("a", c.query)
		require.Equal(t, c.want, b.lines(entries), "%+v", c.query)
		require.Equal(t, c.gone, err != nil, "%+v: %v", c.query, err)
		if c.gone {
			require.ErrorIs(t, err, transfer.ErrHistoryGone)
		}
	}
	b.requireBalanceAt("a", at[1], 80)
	b.requireBalanceAt("a", at[1].Add(-ms), 90)
	for _, instant := range []time.Time{at[1].Add(-ms - 1), at[0], time.Unix(0, 0)} {
		_, err := b.BalanceAt(t.Context(), "a", instant)
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
	}
	b.audit(initial(100, 0))
}

// insertLong stores so many transfers, each of which has moved a unit to account a, a millisecond after the one before. It returns the time
// of the first.
func (b *bank) insertLong(n int) (begin time.Time) {
	b.t.Helper()
	begin = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var documents []any
	for i := range n {
		documents = append(documents, bson.M{
			"_id": fmt.Sprint("t", i), "state": "Success", "committedAt": begin.Add(time.Duration(i) * time.Millisecond),
			"legs": bson.A{bson.M{"ledger": "", "account": "a", "amount": int64(1)}},
		})
	}
	b.insert("transfers", documents...)
	return begin
}

// Wherever in its pages a long history ends, that end is told.
func TestLongHistoryGone(t *testing.T) {
	t.Parallel()
	const long = 2*transfer.HistoryPage + 2
	b := newBank(t, long)
	begin := b.insertLong(long)
	for _, kept := range []int{
		0, 1, transfer.HistoryPage - 1, transfer.HistoryPage, transfer.HistoryPage + 1, 2 * transfer.HistoryPage, long - 1, long,
	} {
		b.PurgedBefore(begin.Add(time.Duration(long-kept) * time.Millisecond))
		entries, err := b.untilGone("a", transfer.StatementQuery{NewestFirst: true})
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
		require.Len(t, entries, kept)
		after := begin.Add(time.Duration(long-kept-1) * time.Millisecond)
		entries, err = b.untilGone("a", transfer.StatementQuery{After: after})
		require.NoError(t, err)
		require.Len(t, entries, kept)
		entries, err = b.untilGone("a", transfer.StatementQuery{After: after.Add(-time.Millisecond)})
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
		require.Empty(t, entries)
	}
	b.PurgedBefore(time.Time{})
	entries, err := b.untilGone("a", transfer.StatementQuery{})
	require.NoError(t, err)
	require.Len(t, entries, long)
	require.Equal(t, transfer.Units(1), entries[0].Balance, "the account was opened with nothing")
}

// What is removed while a statement is ranged over is not passed over in silence.
func TestHistoryGoesMeanwhile(t *testing.T) {
	t.Parallel()
	const long = 2 * transfer.HistoryPage
	b := newBank(t, long)
	begin := b.insertLong(long)
	n := 0
	for _, err := range b.Statement(t.Context(), "a", transfer.StatementQuery{}) {
		if n == transfer.HistoryPage {
			require.ErrorIs(t, err, transfer.ErrHistoryGone)
			return
		}
		require.NoError(t, err)
		if n++; n == transfer.HistoryPage {
			b.PurgedBefore(begin.Add((transfer.HistoryPage + 1) * time.Millisecond))
		}
	}
	require.Fail(t, "the statement ended as if nothing were gone")
}
