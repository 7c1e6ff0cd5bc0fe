package transfer_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// extract is a query for a part of a statement, and the entries it yields.
type extract struct {
	query transfer.StatementQuery
	want  []string
}

// extracts are parts of the statement of an account with entries at three times.
func extracts(at []time.Time) []extract {
	return []extract{
		{transfer.StatementQuery{}, []string{"1 -10 90", "2 4 94", "3 -20 74"}},
		{transfer.StatementQuery{Limit: 2}, []string{"1 -10 90", "2 4 94"}},
		{transfer.StatementQuery{Limit: 3}, []string{"1 -10 90", "2 4 94", "3 -20 74"}},
		{transfer.StatementQuery{Before: at[2]}, []string{"1 -10 90", "2 4 94"}},
		{transfer.StatementQuery{Before: at[2].Add(1)}, []string{"1 -10 90", "2 4 94", "3 -20 74"}},
		{transfer.StatementQuery{Before: at[2], Limit: 1}, []string{"1 -10 90"}},
		{transfer.StatementQuery{After: at[0], Limit: 1}, []string{"2 4 94"}},
		{transfer.StatementQuery{After: at[1]}, []string{"3 -20 74"}},
		{transfer.StatementQuery{After: at[1].Add(-1)}, []string{"2 4 94", "3 -20 74"}},
		{transfer.StatementQuery{After: at[0], Before: at[2]}, []string{"2 4 94"}},
		{transfer.StatementQuery{After: at[2], Before: at[0]}, nil},
		{transfer.StatementQuery{After: at[2]}, nil},
		{transfer.StatementQuery{After: at[2].Add(time.Hour)}, nil},
		{transfer.StatementQuery{Before: at[0]}, nil},
		{transfer.StatementQuery{NewestFirst: true}, []string{"3 -20 74", "2 4 94", "1 -10 90"}},
		{transfer.StatementQuery{NewestFirst: true, Limit: 2}, []string{"3 -20 74", "2 4 94"}},
		{transfer.StatementQuery{NewestFirst: true, Before: at[2]}, []string{"2 4 94", "1 -10 90"}},
		{transfer.StatementQuery{NewestFirst: true, Before: at[2], Limit: 1}, []string{"2 4 94"}},
		{transfer.StatementQuery{NewestFirst: true, Before: at[2].Add(time.Hour), Limit: 1}, []string{"3 -20 74"}},
		{transfer.StatementQuery{NewestFirst: true, After: at[1].Add(-1)}, []string{"3 -20 74", "2 4 94"}},
		{transfer.StatementQuery{NewestFirst: true, After: at[0], Before: at[2]}, []string{"2 4 94"}},
		{transfer.StatementQuery{NewestFirst: true, After: at[2], Before: at[0]}, nil},
	}
}

// A statement lists the movements in order, with the balance after each.
// Failed transfers and waiting ones are not in it.
func TestStatement(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	var at []time.Time
	for _, req := range []transfer.Request{
		bank.Move("1", "a", "b", 10), bank.Move("2", "b", "a", 4), bank.Move("refused", "a", "b", 1000), bank.Move("3", "a", "b", 20),
	} {
		_, err := b.Transfer(t.Context(), req)
		if req.ID == "refused" {
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
			continue
		}
		require.NoError(t, err)
		at = append(at, b.CommittedAt(req.ID))
		require.Eventually(t, func() bool { return time.Since(at[len(at)-1]) > 3*time.Millisecond }, time.Minute, time.Millisecond)
	}
	_, err := b.Submit(t.Context(), bank.Move("waiting", "a", "b", 1))
	require.NoError(t, err)
	const ms = time.Millisecond
	for _, c := range extracts(at) {
		require.Equal(t, c.want, b.Lines(b.MustStatement(b.MustLedger(""), "a", c.query)), "%+v", c.query)
	}
	entries := b.MustStatement(b.MustLedger(""), "b", transfer.StatementQuery{})
	require.Equal(t, []string{"1 10 10", "2 -4 6", "3 20 26"}, b.Lines(entries))
	require.Equal(t, []time.Time{at[0], at[1], at[2]}, []time.Time{entries[0].At, entries[1].At, entries[2].At})
	for at, want := range map[time.Time]int64{
		time.Unix(0, 0): 100, at[0].Add(-1): 100, at[0]: 90, at[1].Add(-1): 90, at[1]: 94, at[2]: 74, at[2].Add(ms): 74, at[2].Add(time.Hour): 74,
	} {
		b.RequireBalanceAt("a", at, want)
	}
	for _, newestFirst := range []bool{false, true} {
		for e, err := range b.Statement(t.Context(), "a", transfer.StatementQuery{NewestFirst: newestFirst}) {
			require.NoError(t, err)
			require.Equal(t, map[bool]string{false: "1", true: "3"}[newestFirst], e.TransferID)
			break // an early end is fine
		}
	}
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(100, 0))
}

// An invalid query is refused with the error that says why.
func TestStatementErrors(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100).WithIndexes()
	b.Insert("accounts", bson.M{"_id": "double", "balance": 1.5}, bson.M{"_id": "text", "balance": "1"})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := b.NewCoordinator(b.DB)
	require.NoError(t, closed.Close(t.Context()))
	for _, c := range []struct {
		ctx         context.Context
		coordinator *transfer.Coordinator
		id          string
		query       transfer.StatementQuery
		want        error
	}{
		{t.Context(), b.Coordinator, "nobody", transfer.StatementQuery{}, transfer.ErrAccountNotFound},
		{t.Context(), b.Coordinator, "", transfer.StatementQuery{}, transfer.ErrInvalidRequest},
		{t.Context(), b.Coordinator, strings.Repeat("x", 256), transfer.StatementQuery{}, transfer.ErrInvalidRequest},
		{t.Context(), b.Coordinator, "double", transfer.StatementQuery{}, transfer.ErrAmountKind},
		{t.Context(), b.Coordinator, "text", transfer.StatementQuery{}, transfer.ErrAmountKind},
		{t.Context(), closed, "a", transfer.StatementQuery{}, transfer.ErrClosed},
		{ended, b.Coordinator, "a", transfer.StatementQuery{}, context.Canceled},
		{t.Context(), b.Coordinator, "a", transfer.StatementQuery{Limit: -1}, transfer.ErrInvalidRequest},
	} {
		n := 0
		for e, err := range c.coordinator.Statement(c.ctx, c.id, c.query) {
			require.ErrorIs(t, err, c.want)
			require.Zero(t, e)
			n++
		}
		require.Equal(t, 1, n, "the error is yielded once")
		if c.query.Limit == 0 {
			_, err := c.coordinator.BalanceAt(c.ctx, c.id, time.Now())
			require.ErrorIs(t, err, c.want)
		}
	}
	b.Remove("accounts", "double", "text")
	b.CheckBooks(bank.Balances(100))
}

// A transfer is an entry from its commit on, and not before, even if its money has not
// arrived.
// The entry of a partly posted hold is the posted part.
func TestStatementOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		transfer           bson.M
		a, b               int64 // the stored balances
		markers            bool
		entriesA, entriesB []string
		postedA, postedB   int64
	}{
		"prepared":    {bson.M{"state": "Preparing"}, 40, 5, true, nil, nil, 100, 5},
		"rolled back": {bson.M{"state": "Rollback"}, 40, 5, true, nil, nil, 100, 5},
		"failed":      {bson.M{"state": "Fail"}, 100, 5, false, nil, nil, 100, 5},
		"committed":   {bson.M{"state": "Committed"}, 40, 5, true, []string{"t -60 40"}, []string{"t 60 65"}, 40, 65},
		"settled":     {bson.M{"state": "Committed"}, 40, 65, false, []string{"t -60 40"}, []string{"t 60 65"}, 40, 65},
		"over":        {bson.M{"state": "Success"}, 40, 65, false, []string{"t -60 40"}, []string{"t 60 65"}, 40, 65},
		"held":        {bson.M{"state": "Preparing", "hold": true, "held": true}, 40, 5, true, nil, nil, 100, 5},
		"posted": {bson.M{"state": "Committed", "hold": true, "held": true, "posted": int64(25)}, 40, 5, true,
			[]string{"t -25 75"}, []string{"t 25 30"}, 75, 30},
		"posted and settled": {bson.M{"state": "Success", "hold": true, "held": true, "posted": int64(25)}, 75, 30, false,
			[]string{"t -25 75"}, []string{"t 25 30"}, 75, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t).WithIndexes()
			past := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
			document := bson.M{"_id": "t", "createdAt": past, "lastModified": past, "epoch": 1, "legs": bson.A{
				bson.M{"ledger": "", "ns": b.DB.Name() + ".accounts", "account": "a", "amount": int64(-60)},
				bson.M{"ledger": "", "ns": b.DB.Name() + ".accounts", "account": "b", "amount": int64(60)},
			}}
			maps.Copy(document, c.transfer)
			if c.entriesA != nil {
				document["committedAt"] = past
			}
			pendingA, pendingB := bson.M{}, bson.M{}
			if c.markers {
				pendingA, pendingB = bson.M{"t": int64(-60)}, bson.M{"t": int64(60)}
			}
			b.Insert("transfers", document)
			b.Insert("accounts", bson.M{"_id": "a", "balance": c.a, "pending": pendingA}, bson.M{"_id": "b", "balance": c.b, "pending": pendingB})
			apart := b.NewCoordinator(b.DB, transfer.WithAccounts(b.Through(nil).Collection("accounts")))
			for _, coordinator := range []*transfer.Coordinator{b.Coordinator, apart} {
				of, err := coordinator.Ledger("")
				require.NoError(t, err)
				require.Equal(t, c.entriesA, b.Lines(b.MustStatement(of, "a", transfer.StatementQuery{})))
				require.Equal(t, c.entriesB, b.Lines(b.MustStatement(of, "b", transfer.StatementQuery{})))
				for at, want := range map[time.Time][2]int64{past: {c.postedA, c.postedB}, past.Add(-1): {100, 5}} {
					for i, id := range []string{"a", "b"} {
						got, err := of.BalanceAt(t.Context(), id, at)
						require.NoError(t, err)
						require.Equal(t, want[i], bank.Units(t, got), "%s at %s", id, at)
					}
				}
			}
		})
	}
}

// A hold is not an entry. Its posted amount is one, and so is its reversal, which names
// the transfer that it reverses.
func TestStatementOfHoldsAndReversals(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5).WithIndexes()
	b.MustHold("t", 60, time.Hour)
	b.MustHold("void", 30, time.Hour)
	require.Empty(t, b.MustStatement(b.MustLedger(""), "a", transfer.StatementQuery{}))
	b.RequireBalanceAt("a", time.Now(), 100)
	_, err := b.Post(t.Context(), "t", transfer.PostAmount(transfer.Units(25)))
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "void")
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "u", Of: "t", All: true})
	require.NoError(t, err)
	for account, want := range map[string][]string{"a": {"t -25 75", "u 25 100"}, "b": {"t 25 30", "u -25 5"}} {
		entries := b.MustStatement(b.MustLedger(""), account, transfer.StatementQuery{})
		require.Equal(t, want, b.Lines(entries))
		require.Equal(t, []string{"", "t"}, []string{entries[0].Reverses, entries[1].Reverses})
	}
	b.CheckBooks(bank.Balances(100, 5))
}

// Decimals, ObjectIds, custom field names and other ledgers have statements too.
func TestStatementOfOtherForms(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	c := b.NewCoordinator(b.DB, transfer.WithAccountIDs(transfer.ObjectIDs), transfer.WithLedger("euro", b.DB.Collection("euro")),
		transfer.WithFields(transfer.Fields{Balance: "credits", Pending: "on its way"}))
	require.NoError(t, c.Setup(t.Context()))
	of, err := c.Ledger("euro")
	require.NoError(t, err)
	const ann, ben = "0123456789abcdef01234567", "0123456789abcdef01234568"
	for id, balance := range map[string]string{ann: "10.50", ben: "0"} {
		_, err := of.Open(t.Context(), transfer.Account{ID: id, Balance: bank.Decimal(t, balance)})
		require.NoError(t, err)
		_, err = c.OpenAccount(t.Context(), transfer.Account{ID: id})
		require.NoError(t, err)
	}
	var last transfer.Record
	for id, amount := range map[string]string{"1": "0.25", "2": "0.1"} {
		last, err = c.Transfer(t.Context(), transfer.Request{ID: id, Legs: []transfer.Leg{
			{Ledger: "euro", Account: ann, Amount: bank.Decimal(t, amount).Neg()},
			{Ledger: "euro", Account: strings.ToUpper(ben), Amount: bank.Decimal(t, amount)},
		}})
		require.NoError(t, err)
	}
	for id, want := range map[string][2]string{strings.ToUpper(ann): {"10.15", "10.50"}, ben: {"0.35", "0"}} {
		var entries []transfer.Entry
		for e, err := range of.Statement(t.Context(), id, transfer.StatementQuery{}) {
			require.NoError(t, err)
			entries = append(entries, e)
		}
		require.Len(t, entries, 2)
		require.Equal(t, want[0], entries[1].Balance.String())
		balance, err := of.BalanceAt(t.Context(), id, b.CommittedAt(last.ID).Add(-time.Hour))
		require.NoError(t, err)
		require.Zero(t, balance.Cmp(bank.Decimal(t, want[1])), "%s was opened with %s", id, balance)
	}
	for _, err := range c.Statement(t.Context(), ann, transfer.StatementQuery{}) {
		require.NoError(t, err)
		require.Fail(t, "the account of that ID in another ledger has no entries")
	}
	for _, err := range c.Statement(t.Context(), "ann", transfer.StatementQuery{}) {
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
}

// untilGone collects what a statement yields before its error.
func untilGone(b *bank.Bank, id string, q transfer.StatementQuery) (entries []transfer.Entry, err error) {
	b.T.Helper()
	for e, failure := range b.Statement(b.T.Context(), id, q) {
		require.NoError(b.T, err, "nothing comes after an error")
		if err = failure; err == nil {
			entries = append(entries, e)
		}
	}
	bank.RequireChain(b.T, q, entries)
	return entries, err
}

// A query within the kept history returns no error.
// A query beyond it returns ErrHistoryGone: at once, or newest first after the kept
// entries.
// Entries that may have gaps between them are not returned, even if some still exist.
func TestHistoryGone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	var at []time.Time
	for _, id := range []string{"1", "2", "3", "4"} {
		_, err := b.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
		at = append(at, b.CommittedAt(id))
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
		entries, err := untilGone(b, "a", c.query)
		require.Equal(t, c.want, b.Lines(entries), "%+v", c.query)
		require.Equal(t, c.gone, err != nil, "%+v: %v", c.query, err)
		if c.gone {
			require.ErrorIs(t, err, transfer.ErrHistoryGone)
		}
	}
	b.RequireBalanceAt("a", at[1], 80)
	b.RequireBalanceAt("a", at[1].Add(-ms), 90)
	for _, instant := range []time.Time{at[1].Add(-ms - 1), at[0], time.Unix(0, 0)} {
		_, err := b.BalanceAt(t.Context(), "a", instant)
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// insertLong stores n transfers, a millisecond apart, each of which has moved a unit to
// account a.
// It returns the time of the first.
func insertLong(b *bank.Bank, n int) (begin time.Time) {
	b.T.Helper()
	begin = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var documents []any
	for i := range n {
		documents = append(documents, bson.M{
			"_id": fmt.Sprint("t", i), "state": "Success", "committedAt": begin.Add(time.Duration(i) * time.Millisecond),
			"legs": bson.A{bson.M{"ledger": "", "account": "a", "amount": int64(1)}},
		})
	}
	b.Insert("transfers", documents...)
	return begin
}

// The end of a long history is reported wherever in its pages it lies.
func TestLongHistoryGone(t *testing.T) {
	t.Parallel()
	const long = 2*transfer.HistoryPage + 2
	b := bank.New(t, long).WithIndexes()
	begin := insertLong(b, long)
	for _, kept := range []int{
		0, 1, transfer.HistoryPage - 1, transfer.HistoryPage, transfer.HistoryPage + 1, 2 * transfer.HistoryPage, long - 1, long,
	} {
		b.PurgedBefore(begin.Add(time.Duration(long-kept) * time.Millisecond))
		entries, err := untilGone(b, "a", transfer.StatementQuery{NewestFirst: true})
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
		require.Len(t, entries, kept)
		after := begin.Add(time.Duration(long-kept-1) * time.Millisecond)
		entries, err = untilGone(b, "a", transfer.StatementQuery{After: after})
		require.NoError(t, err)
		require.Len(t, entries, kept)
		entries, err = untilGone(b, "a", transfer.StatementQuery{After: after.Add(-time.Millisecond)})
		require.ErrorIs(t, err, transfer.ErrHistoryGone)
		require.Empty(t, entries)
	}
	b.PurgedBefore(time.Time{})
	entries, err := untilGone(b, "a", transfer.StatementQuery{})
	require.NoError(t, err)
	require.Len(t, entries, long)
	require.Equal(t, transfer.Units(1), entries[0].Balance, "the account was opened with nothing")
}

// Entries that are removed while a statement is read are not skipped silently.
func TestHistoryGoesMeanwhile(t *testing.T) {
	t.Parallel()
	const long = 2 * transfer.HistoryPage
	b := bank.New(t, long).WithIndexes()
	begin := insertLong(b, long)
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

// requireStatement requires the entries of an account's statement, with the balance after
// each, and what was posted after the last one.
func requireStatement(b *bank.Bank, id string, opening int64, ids []string, amounts ...int64) {
	b.T.Helper()
	var listed []string
	balance := opening
	for e, err := range b.Statement(b.T.Context(), id, transfer.StatementQuery{}) {
		require.NoError(b.T, err)
		require.Less(b.T, len(listed), len(amounts), "%v", e)
		balance += amounts[len(listed)]
		require.Equal(b.T, transfer.Units(balance), e.Balance, "account %s", id)
		listed = append(listed, e.TransferID)
	}
	require.Equal(b.T, ids, listed, "account %s", id)
	at, err := b.BalanceAt(b.T.Context(), id, time.Now().Add(time.Hour))
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.Units(balance), at, "account %s", id)
}

// A transfer is in the statements of all its accounts from its record on, whatever is
// left of it on them. Before that, what it has paid in is in none.
func TestStatementBesideTraces(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, row := range []struct {
		state        string
		payer, payee bank.Trace
	}{
		{"Preparing", bank.Reserved, bank.Unprepared}, {"Preparing", bank.Reserved, bank.Reserved}, {"Preparing", bank.Reserved, bank.Done},
		{"Committed", bank.Reserved, bank.Reserved}, {"Committed", bank.Reserved, bank.Done}, {"Committed", bank.Reserved, bank.Cleared},
		{"Committed", bank.Cleared, bank.Reserved}, {"Committed", bank.Cleared, bank.Done}, {"Committed", bank.Cleared, bank.Cleared},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.MustMove("first", 10)
			b.LeaveTraces("t", 60, row.state, row.payer, row.payee)
			if row.state == "Preparing" {
				requireStatement(b, "a", 100, []string{"first"}, -10)
				requireStatement(b, "b", 5, []string{"first"}, 10)
			} else {
				requireStatement(b, "a", 100, []string{"first", "t"}, -10, -60)
				requireStatement(b, "b", 5, []string{"first", "t"}, 10, 60)
			}
			b.RecoverAll()
			requireStatement(b, "a", 100, []string{"first", "t"}, -10, -60)
			requireStatement(b, "b", 5, []string{"first", "t"}, 10, 60)
			require.Empty(t, b.MustAudit().Findings)
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// What was answered is shown: by accounts, statements and closing, while the clears are
// deferred.
func TestReadersAfterTheAnswer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	opening, amounts, ids := int64(1000), []int64(nil), []string(nil)
	for n := range 20 {
		id := fmt.Sprint("t", n)
		_, err := b.Transfer(t.Context(), bank.Move(id, "a", "b", 50))
		require.NoError(t, err)
		ids, amounts = append(ids, id), append(amounts, -50)
		opening -= 50
		requireAccount(b, "a", opening, opening, 0)
		requireAccount(b, "b", 1000-opening, 1000-opening, 0)
		require.Empty(t, b.MustAudit().Findings)
	}
	requireStatement(b, "a", 1000, ids, amounts...)
	require.NoError(t, b.CloseAccount(t.Context(), "a"))
	for _, id := range ids {
		b.UntilSuccess(b.Coordinator, id)
	}
	require.Empty(t, b.MustAudit().Findings)
	b.CheckBooks(bank.Balances(1000, 0))
}
