package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// ids collects the IDs that a query selects, in order.
func (b *bank) ids(q transfer.Query) []string {
	b.t.Helper()
	found := []string{}
	for rec, err := range b.List(b.t.Context(), q) {
		require.NoError(b.t, err)
		found = append(found, rec.ID)
	}
	return found
}

// List yields what its query selects, newest first.
func TestList(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 100, 0)
	var middle, second time.Time // the second one was created within a millisecond that is stored as a whole
	for i, req := range []transfer.Request{
		move("1", "a", "b", 1), move("2", "b", "c", 1000), move("3", "a", "c", 1), move("4", "c", "b", 1),
	} {
		req.Metadata = map[string]any{"kind": fmt.Sprint("kind", i%2), "n": i}
		rec, _ := b.Transfer(t.Context(), req)
		if req.ID == "2" {
			middle, second = rec.CreatedAt.Add(2*time.Millisecond), rec.CreatedAt.Truncate(time.Millisecond)
			require.Eventually(t, func() bool { return time.Since(rec.CreatedAt) > 5*time.Millisecond }, time.Minute, time.Millisecond)
		}
	}
	for _, c := range []struct {
		query transfer.Query
		want  []string
	}{
		{transfer.Query{}, []string{"4", "3", "2", "1"}},
		{transfer.Query{Limit: 2}, []string{"4", "3"}},
		{transfer.Query{States: []transfer.State{transfer.StateFail}}, []string{"2"}},
		{transfer.Query{States: []transfer.State{transfer.StateFail, transfer.StateSuccess}, Account: "c"}, []string{"4", "3", "2"}},
		{transfer.Query{Account: "a"}, []string{"3", "1"}},
		{transfer.Query{Account: "nobody"}, []string{}},
		{transfer.Query{After: middle}, []string{"4", "3"}},
		{transfer.Query{Before: middle}, []string{"2", "1"}},
		{transfer.Query{Before: second.Add(1)}, []string{"2", "1"}},
		{transfer.Query{After: second.Add(-1)}, []string{"4", "3", "2"}},
		{transfer.Query{Metadata: map[string]any{"kind": "kind1"}}, []string{"4", "2"}},
		{transfer.Query{Metadata: map[string]any{"kind": "kind1", "n": 1}}, []string{"2"}},
	} {
		require.Equal(t, c.want, b.ids(c.query), "%+v", c.query)
	}
	nested := map[string]any{"where": map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, "list": []any{map[string]any{"x": 1, "y": 2}}}
	req := move("nested", "a", "b", 1)
	req.Metadata = nested
	_, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	for range 10 {
		require.Equal(t, []string{"nested"}, b.ids(transfer.Query{Metadata: nested}), "equal maps are equal documents")
	}
	for _, err := range b.List(t.Context(), transfer.Query{}) {
		require.NoError(t, err)
		break // an early end is fine
	}
	for _, q := range []transfer.Query{
		{Limit: -1}, {Ledger: "euro"}, {States: []transfer.State{"Pondering"}}, {Metadata: map[string]any{"a.b": 1}},
	} {
		for _, err := range b.List(t.Context(), q) {
			require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		}
	}
	_, err = b.Get(t.Context(), "nothing")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	_, err = b.Get(t.Context(), "")
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.audit(initial(100, 100, 0))
}
