package transfer_test

import (
	"fmt"
	"slices"
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

// pagesOf returns the pages of a list, each of which begins beyond the last record of the
// one before.
// Between any two of them, something happens.
func pagesOf(b *bank.Bank, q transfer.Query, between func(page []string)) (pages [][]string) {
	b.T.Helper()
	for {
		page := b.IDs(q)
		if len(page) == 0 {
			return pages
		}
		pages = append(pages, page)
		require.LessOrEqual(b.T, len(pages), 1000, "no page is shown twice")
		q.Beyond = page[len(page)-1]
		between(page)
	}
}

// Pages show each of 300 transfers once, in the order of the list, though many were
// created in the same millisecond, and others are stored meanwhile.
func TestPages(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	var requests []transfer.Request
	for _, id := range bank.Numbered("t", 300) {
		requests = append(requests, bank.Move(id, "a", "b", 1))
	}
	_, failures := b.TransferMany(t.Context(), requests)
	for _, err := range failures {
		require.NoError(t, err)
	}
	sharing := map[time.Time]int{}
	for rec, err := range b.List(t.Context(), transfer.Query{}) {
		require.NoError(t, err)
		sharing[rec.CreatedAt]++
	}
	require.Less(t, len(sharing), 300, "some were created in the same millisecond")
	for _, q := range []transfer.Query{{}, {Account: "a"}, {States: []transfer.State{transfer.StateSuccess, transfer.StateCommitted}}} {
		for _, limit := range []int{1, 7, 10, 299, 300, 301} {
			q.Limit = 0
			whole, more := b.IDs(q), 0
			q.Limit = limit
			pages := pagesOf(b, q, func(page []string) {
				require.LessOrEqual(t, len(page), q.Limit)
				if more++; q.Limit == 10 && more < 4 {
					b.MustMove(fmt.Sprint("meanwhile", len(whole), more), 1)
				}
			})
			require.Equal(t, whole, slices.Concat(pages...), "%+v", q)
			n, err := b.Count(t.Context(), transfer.Query{Account: "a", Limit: 5, Beyond: whole[0]})
			require.NoError(t, err)
			require.Len(t, b.IDs(transfer.Query{}), int(n), "a count heeds neither Limit nor Beyond")
		}
	}
	b.CheckBooks(bank.Balances(1000, 0))
}

// The record that a page goes on behind may be of any kind, also one that the query does
// not select any more.
// A range that ends before it, or begins behind it, is still the range.
func TestPagesGoOnBehindAnything(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	for i, id := range []string{"1", "2", "3", "4", "5", "6"} {
		b.MustSubmit(id)
		b.SetField("transfers", id, "createdAt", time.UnixMilli(1_700_000_000_000+int64(i/2)))
	}
	waiting := transfer.Query{Unfinished: true, Limit: 2}
	pages := pagesOf(b, waiting, func(page []string) {
		for _, id := range page {
			_, err := b.Cancel(t.Context(), id, "seen")
			require.NoError(t, err)
		}
	})
	require.Equal(t, [][]string{{"6", "5"}, {"4", "3"}, {"2", "1"}}, pages)
	at := func(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }
	for _, c := range []struct {
		query transfer.Query
		want  []string
	}{
		{transfer.Query{Beyond: "5"}, []string{"4", "3", "2", "1"}},
		{transfer.Query{Beyond: "4", Limit: 1}, []string{"3"}},
		{transfer.Query{Beyond: "4", Limit: 2}, []string{"3", "2"}},
		{transfer.Query{Beyond: "4", After: at(0)}, []string{"3"}},
		{transfer.Query{Beyond: "4", After: at(1)}, []string{}},
		{transfer.Query{Beyond: "6", Before: at(1)}, []string{"2", "1"}},
		{transfer.Query{Beyond: "6", Before: at(2)}, []string{"4", "3", "2", "1"}},
		{transfer.Query{Beyond: "1"}, []string{}},
		{transfer.Query{Beyond: "4", Unfinished: true}, []string{}},
	} {
		require.Equal(t, c.want, b.IDs(c.query), "%+v", c.query)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A page can't go on behind what isn't there: it would leave something out, or show it
// twice.
func TestPagesBehindNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("t", 1)
	b.MustMove("purged", 1)
	purged := b.Raw("transfers")
	b.Remove("transfers", "purged")
	for _, id := range []string{"purged", "nobody"} {
		n := 0
		for rec, err := range b.List(t.Context(), transfer.Query{Beyond: id}) {
			require.ErrorIs(t, err, transfer.ErrTransferNotFound)
			require.ErrorContains(t, err, id)
			require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
			require.Zero(t, rec)
			n++
		}
		require.Equal(t, 1, n)
		count, err := b.Count(t.Context(), transfer.Query{Beyond: id})
		require.NoError(t, err, "which it doesn't heed")
		require.EqualValues(t, 1, count)
	}
	for _, stored := range purged {
		if stored["_id"] == "purged" {
			b.Insert("transfers", stored)
		}
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// leaveWork leaves a transfer of each kind, moving money from a: final, waiting for a
// worker, held, and stalled.
func leaveWork(b *bank.Bank) {
	b.T.Helper()
	b.MustMove("moved", 60)
	_, err := b.Transfer(b.T.Context(), bank.Move("refused", "c", "b", 60))
	require.ErrorIs(b.T, err, transfer.ErrInsufficientFunds)
	_, err = b.Reverse(b.T.Context(), transfer.Reversal{ID: "reversal", Of: "moved", All: true})
	require.NoError(b.T, err)
	b.MustSubmit("waiting")
	_, err = b.Submit(b.T.Context(), bank.Later("scheduled", 1))
	require.NoError(b.T, err)
	b.MustHold("held", 10, time.Hour)
	b.MustHold("expiring", 10, 20*time.Minute)
	b.MustHold("overdue", 10, time.Hour)
	b.MustHold("posted", 10, time.Hour)
	b.MustHold("voided", 10, time.Hour)
	_, err = b.Post(b.T.Context(), "posted")
	require.NoError(b.T, err)
	_, err = b.Void(b.T.Context(), "voided")
	require.NoError(b.T, err)
	b.StallHold("unheld", bank.HeldMark)
	b.StallAt("committed", bank.Settles, bank.Lost, 60)
	b.UntilSuccess(b.Coordinator, "posted")
	b.UntilSuccess(b.Coordinator, "reversal")
	b.Expire("overdue")
	b.Silence("committed", 10*time.Minute)
	b.Silence("held", 3*time.Minute)
	b.SetField("transfers", "waiting", "lastModified", time.Now().Add(time.Hour)) // by a clock that was wrong
}

// Each query of work finds exactly the transfers that it names, and Count counts them.
func TestQueriesOfWork(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0, 0).WithIndexes()
	leaveWork(b)
	const minute = time.Minute
	unfinished := []string{"waiting", "scheduled", "held", "expiring", "overdue", "unheld", "committed"}
	states := func(states ...transfer.State) transfer.Query { return transfer.Query{States: states} }
	preparing := transfer.StatePreparing
	for _, c := range []struct {
		query transfer.Query
		want  []string
	}{
		{transfer.Query{Unfinished: true}, unfinished},
		{transfer.Query{Unfinished: true, Account: "c"}, []string{}},
		{
			transfer.Query{Unfinished: true, States: []transfer.State{preparing, transfer.StateSuccess}},
			[]string{"held", "expiring", "overdue", "unheld"},
		},
		{transfer.Query{IdleFor: 5 * minute}, []string{"committed", "waiting"}},
		{transfer.Query{IdleFor: 2 * minute}, []string{"committed", "waiting", "held"}},
		{transfer.Query{IdleFor: 5 * minute, States: []transfer.State{transfer.StateCommitted}}, []string{"committed"}},
		{transfer.Query{IdleFor: time.Nanosecond}, unfinished},
		{transfer.Query{IdleFor: 1000 * time.Hour}, []string{}},
		{transfer.Query{Holds: true}, []string{"held", "expiring", "overdue"}},
		{transfer.Query{Holds: true, IdleFor: 2 * minute}, []string{"held"}},
		{transfer.Query{Holds: true, Account: "b"}, []string{"held", "expiring", "overdue"}},
		{transfer.Query{Holds: true, States: []transfer.State{preparing, transfer.StateFail}}, []string{"held", "expiring", "overdue"}},
		{transfer.Query{Holds: true, States: []transfer.State{transfer.StateFail}}, []string{}},
		{transfer.Query{ExpiresBefore: time.Now()}, []string{"overdue"}},
		{transfer.Query{ExpiresBefore: time.Now().Add(30 * minute)}, []string{"overdue", "expiring"}},
		{transfer.Query{ExpiresBefore: time.Now().Add(5 * time.Hour), Holds: true}, []string{"overdue", "expiring", "held"}},
		{transfer.Query{ExpiresBefore: time.Unix(1, 0)}, []string{}},
		{transfer.Query{Reverses: "moved"}, []string{"reversal"}},
		{transfer.Query{Reverses: "reversal"}, []string{}},
		{transfer.Query{Reverses: "moved", Unfinished: true}, []string{}},
		{states(transfer.StateInitiated), []string{"waiting", "scheduled"}},
		{states(transfer.StateFail), []string{"refused", "voided"}},
		{states(transfer.StateFail, transfer.StateRollback), []string{"refused", "voided"}},
		{states(transfer.StateSuccess), []string{"moved", "posted", "reversal"}},
		{states(transfer.StateFail, transfer.StateInitiated), []string{"refused", "voided", "waiting", "scheduled"}},
	} {
		require.ElementsMatch(t, c.want, b.IDs(c.query), "%+v", c.query)
		n, err := b.Count(t.Context(), c.query)
		require.NoError(t, err)
		require.EqualValues(t, len(c.want), n, "%+v", c.query)
	}
	held, err := b.Get(t.Context(), "held")
	require.NoError(t, err)
	require.NotContains(t, b.IDs(transfer.Query{ExpiresBefore: held.ExpiresAt}), "held")
	require.Contains(t, b.IDs(transfer.Query{ExpiresBefore: held.ExpiresAt.Add(1)}), "held", "within a millisecond")
	b.SetField("transfers", "waiting", "lastModified", time.Now())
	b.SetField("transfers", "unheld", "metadata", bson.M{"kind": "odd"})
	require.Equal(t, []string{"unheld"}, b.IDs(transfer.Query{Unfinished: true, Metadata: map[string]any{"kind": "odd"}}))
	b.ExpireAll()
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0, 0))
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
