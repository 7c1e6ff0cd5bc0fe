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
	requireChain(b.t, entries)
	return entries, err
}

// What is kept is told, and then that the rest is gone; who asks for no more than what is kept is told no error. What may have gaps is
// not told, even if some of it is still there.
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
		{transfer.StatementQuery{}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{Limit: 3}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, false},
		{transfer.StatementQuery{Limit: 4}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{After: at[1].Add(-ms)}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, false},
		{transfer.StatementQuery{After: at[1].Add(-ms - 1)}, []string{"4 -10 60", "3 -10 70", "2 -10 80"}, true},
		{transfer.StatementQuery{Before: at[2]}, []string{"2 -10 80"}, true},
		{transfer.StatementQuery{Before: at[1]}, nil, true},
		{transfer.StatementQuery{Before: at[0].Add(-ms)}, nil, true},
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
	for _, instant := range []time.Time{at[1].Add(-ms - 1), at[0], {}} {
		_, err := b.BalanceAt(t.Context(), "a", instant)
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
	}
	b.audit(initial(100, 0))
}

// Wherever in its pages a long history ends, that end is told.
func TestLongHistoryGone(t *testing.T) {
	t.Parallel()
	const long = 2*transfer.HistoryPage + 2
	b := newBank(t, long)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var documents []any
	for i := range long {
		documents = append(documents, bson.M{
			"_id": fmt.Sprint("t", i), "state": "Success", "committedAt": begin.Add(time.Duration(i) * time.Millisecond),
			"legs": bson.A{bson.M{"ledger": "", "account": "a", "amount": int64(1)}},
		})
	}
	b.insert("transfers", documents...)
	for _, kept := range []int{
		0, 1, transfer.HistoryPage - 1, transfer.HistoryPage, transfer.HistoryPage + 1, 2 * transfer.HistoryPage, long - 1, long,
	} {
		b.PurgedBefore(begin.Add(time.Duration(long-kept) * time.Millisecond))
		entries, err := b.untilGone("a", transfer.StatementQuery{})
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
		require.Len(t, entries, kept)
	}
	b.PurgedBefore(time.Time{})
	entries, err := b.untilGone("a", transfer.StatementQuery{})
	require.NoError(t, err)
	require.Len(t, entries, long)
	require.Equal(t, transfer.Units(1), entries[long-1].Balance, "the account was opened with nothing")
}
