package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// List yields the transfers that its query selects, newest first.
func TestList(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 100, 0).WithIndexes()
	var middle, second time.Time // the second transfer was created within a millisecond, which is stored as a whole
	for i, req := range []transfer.Request{
		bank.Move("1", "a", "b", 1), bank.Move("2", "b", "c", 1000), bank.Move("3", "a", "c", 1), bank.Move("4", "c", "b", 1),
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
		require.Equal(t, c.want, b.IDs(c.query), "%+v", c.query)
	}
	nested := map[string]any{"where": map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}, "list": []any{map[string]any{"x": 1, "y": 2}}}
	req := bank.Move("nested", "a", "b", 1)
	req.Metadata = nested
	_, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	for range 10 {
		require.Equal(t, []string{"nested"}, b.IDs(transfer.Query{Metadata: nested}), "equal maps are equal documents")
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
	b.CheckBooks(bank.Balances(100, 100, 0))
}

// A query finds a transfer by each key of its metadata: numbers by value, lists also by
// an element, maps as a whole.
// An empty value differs from a missing one.
// Metadata that was read back finds the transfer as well.
func TestMetadataQueries(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	full := map[string]any{
		"text": "Zoë", "number": 5, "large": int64(1) << 40, "fraction": 2.5, "yes": true, "nothing": nil, "due": due, "0": "digit",
		"tags": []string{"new", "gift"}, "where": map[string]any{"b": 2, "a": map[string]string{"y": "1", "x": "2"}},
		"amount": bank.Decimal(t, "12.50"), "raw": []byte{1, 2}, "pattern": bson.Regex{Pattern: "^Z"},
	}
	req := bank.Move("full", "a", "b", 1)
	req.Metadata = full
	rec, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	req = bank.Move("other", "a", "b", 1)
	req.Metadata = map[string]any{"text": "zoë", "number": "5", "tags": []string{"new"}, "where": map[string]any{"b": 2}, "yes": false}
	_, err = b.Transfer(t.Context(), req)
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("bare", "a", "b", 1))
	require.NoError(t, err)

	one := []string{"full"}
	for key, value := range full {
		want := one
		require.Equal(t, want, b.IDs(transfer.Query{Metadata: map[string]any{key: value}}), key)
	}
	require.Equal(t, one, b.IDs(transfer.Query{Metadata: full}))
	require.Equal(t, one, b.IDs(transfer.Query{Metadata: rec.Metadata}), "as it is read back")
	for _, c := range []struct {
		metadata map[string]any
		want     []string
	}{
		{map[string]any{"number": int64(5)}, one},
		{map[string]any{"number": 5.0}, one},
		{map[string]any{"number": bank.Decimal(t, "5")}, one},
		{map[string]any{"tags": "gift"}, one},
		{map[string]any{"tags": "new"}, []string{"other", "full"}},
		{map[string]any{"tags": []string{"gift", "new"}}, []string{}},
		{map[string]any{"where": map[string]any{"a": map[string]string{"x": "2", "y": "1"}, "b": 2}}, one},
		{map[string]any{"where": map[string]any{"a": map[string]string{"x": "2", "y": "1"}}}, []string{}},
		{map[string]any{"text": "Zoë", "number": 6}, []string{}},
		{map[string]any{"text": bson.Regex{Pattern: "^Z"}}, []string{}},
		{map[string]any{"nobody": nil}, []string{}},
		{map[string]any{}, []string{"bare", "other", "full"}},
	} {
		require.Equal(t, c.want, b.IDs(transfer.Query{Metadata: c.metadata}), "%v", c.metadata)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// While no server can be reached, Wait and Transfer return after 30 s, with the cause.
func TestWaitersOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	w := &bank.Wire{At: -1}
	var sent [2]bank.Traffic
	var ahead [2]func(time.Duration)
	var coordinators [2]*transfer.Coordinator // one for each, so that each one's traffic shows what it knows
	for i := range coordinators {
		coordinators[i] = b.NewCoordinator(b.Through(sent[i].Client().SetDialer(w)))
		ahead[i] = coordinators[i].ClockAhead()
	}
	end := bank.CallAll(2, func(i int) (transfer.Record, error) {
		if i == 0 {
			return coordinators[i].Wait(t.Context(), "t")
		}
		return coordinators[i].Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	})
	require.Eventually(t, func() bool { // the first request for changes was answered, long after the transfer was read
		return sent[0].More.Load() > 1 && sent[1].More.Load() > 1
	}, 5*time.Minute, time.Millisecond)
	w.Cut()
	done := make(chan []bank.Answer, 1)
	go func() { done <- end() }()
	var answers []bank.Answer
	later := time.Duration(0)
	require.Eventually(t, func() bool {
		later += time.Minute
		ahead[0](later)
		ahead[1](later)
		select {
		case answers = <-done:
			return true
		default:
			return false
		}
	}, 5*time.Minute, 100*time.Millisecond)
	for _, a := range answers {
		require.ErrorIs(t, a.Err, transfer.ErrUnsettled, "it was seen to be committed")
		require.ErrorContains(t, a.Err, bank.CutOff().Error())
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
