package statements

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// movement is what a transfer has moved on one account, and the balance after it.
type movement struct {
	id           string
	at           time.Time
	units, after int64
	reverses     string
}

// replay computes the history of all accounts of the default ledger from the stored
// transfers, oldest first, and the opening balances.
func replay(b *bank.Bank, opening map[string]int64) map[string][]movement {
	b.T.Helper()
	cursor, err := b.DB.Collection("transfers").Find(b.T.Context(), bson.M{"committedAt": bson.M{"$exists": true}})
	require.NoError(b.T, err)
	var transfers []struct {
		ID   string `bson:"_id"`
		Legs []struct {
			Ledger, Account string
			Amount          int64
		}
		Posted      *int64
		CommittedAt time.Time `bson:"committedAt"`
		Reverses    string
	}
	require.NoError(b.T, cursor.All(b.T.Context(), &transfers))
	history := map[string][]movement{}
	for _, t := range transfers {
		for _, leg := range t.Legs {
			if leg.Ledger != "" {
				continue
			}
			m := movement{id: t.ID, at: t.CommittedAt, units: leg.Amount, reverses: t.Reverses}
			if t.Posted != nil && leg.Amount > 0 {
				m.units = *t.Posted
			} else if t.Posted != nil {
				m.units = -*t.Posted
			}
			history[leg.Account] = append(history[leg.Account], m)
		}
	}
	for account, movements := range history {
		slices.SortFunc(movements, func(x, y movement) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.id, y.id)) })
		balance := opening[account]
		for i := range movements {
			balance += movements[i].units
			movements[i].after = balance
		}
	}
	return history
}

// requireStatement requires that a statement has the given movements of an account,
// oldest first, and nothing else.
func requireStatement(b *bank.Bank, account string, movements []movement) {
	b.T.Helper()
	entries := b.MustStatement(b.MustLedger(""), account, transfer.StatementQuery{})
	require.Len(b.T, entries, len(movements), "the statement of %s", account)
	for i, m := range movements {
		want := transfer.Entry{
			TransferID: m.id, Amount: transfer.Units(m.units), Balance: transfer.Units(m.after), At: m.at, Reverses: m.reverses,
		}
		got := entries[i]
		require.Contains(b.T, got.Legs, transfer.Leg{Account: account, Amount: got.Amount})
		if got.Legs = nil; !reflect.DeepEqual(got, want) {
			require.Equal(b.T, want, got, "entry %d of %s", i, account)
		}
	}
}

const (
	newTransfers = 2_000
	pastAccounts = 12
)

// pastTransfers is the number of invented transfers.
// It makes 100,000 transfers together with the others, and fewer in short mode.
func pastTransfers() int {
	if testing.Short() {
		return 10_000
	}
	return 100_000 - newTransfers
}

// pastDocument invents a finished transfer: failed or committed, sometimes a partly
// posted hold or a reversal.
// It adds to the balances what the transfer moves.
func pastDocument(random *rand.Rand, i int, at time.Time, balances map[string]int64) bson.M {
	from, to := random.IntN(pastAccounts), random.IntN(pastAccounts-1)
	if to >= from {
		to++
	}
	amount := 1 + random.Int64N(1000)
	leg := func(account, amount int64) bson.M {
		return bson.M{"ledger": "", "ns": "x.accounts", "account": fmt.Sprint("account", account), "amount": amount}
	}
	legs := bson.A{leg(int64(from), -amount), leg(int64(to), amount)}
	document := bson.M{
		"_id": fmt.Sprint("past ", random.IntN(10), i), "state": "Success", "legs": legs, "digest": []byte{1}, "epoch": int64(1),
		"createdAt": at, "lastModified": at, "committedAt": at,
	}
	moved := amount
	switch random.IntN(10) {
	case 0:
		document["state"], document["failure"] = "Fail", bson.M{"code": "cancelled"}
		delete(document, "committedAt")
		moved = 0
	case 1:
		moved = 1 + random.Int64N(amount)
		document["hold"], document["held"], document["posted"] = true, true, moved
	case 2:
		document["reverses"] = fmt.Sprint("another ", i)
	}
	balances[fmt.Sprint("account", from)] -= moved
	balances[fmt.Sprint("account", to)] += moved
	return document
}

// insertPast invents a history of transfers, and stores it with the resulting balances.
// It returns when the history began, and the opening balance of each account.
func insertPast(b *bank.Bank, random *rand.Rand) (begin time.Time, opening map[string]int64) {
	b.T.Helper()
	opening = map[string]int64{}
	for i := range pastAccounts {
		opening[fmt.Sprint("account", i)] = 1_000_000_000
	}
	balances := maps.Clone(opening)
	transfers := b.DB.Collection("transfers")
	require.NoError(b.T, transfers.Indexes().DropAll(b.T.Context())) // building them afterwards takes half the time
	begin = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	at := begin
	batch := make([]any, 0, 10_000)
	n := pastTransfers()
	for i := range n {
		at = at.Add(time.Duration(random.IntN(3)/2*random.IntN(100)) * time.Millisecond) // most share a millisecond with others
		batch = append(batch, pastDocument(random, i, at, balances))
		if len(batch) == cap(batch) || i == n-1 {
			_, err := transfers.InsertMany(b.T.Context(), batch, options.InsertMany().SetOrdered(false))
			require.NoError(b.T, err)
			batch = batch[:0]
		}
	}
	require.NoError(b.T, b.Setup(b.T.Context()))
	for id, balance := range balances {
		b.Insert("accounts", bson.M{"_id": id, "balance": balance})
	}
	return begin, opening
}

// A statement of 100,000 transfers agrees with a replay to the unit, for transfers of the
// library and invented ones.
// This holds for every entry of every account, and for the balance at any instant.
func TestStatementIsExact(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	random := bank.Seeded(t)
	begin, opening := insertPast(b, random)
	requests := make([]transfer.Request, newTransfers)
	for i := range requests {
		from := random.IntN(pastAccounts)
		to := (from + 1 + random.IntN(pastAccounts-1)) % pastAccounts
		requests[i] = bank.Move(fmt.Sprint("new ", i), fmt.Sprint("account", from), fmt.Sprint("account", to), 1+random.Int64N(1000))
	}
	_, failures := b.TransferMany(t.Context(), requests)
	for _, err := range failures {
		require.NoError(t, err)
	}

	history := replay(b, opening)
	require.Len(t, history, pastAccounts)
	stored := b.Balances()
	for id, movements := range history {
		requireStatement(b, id, movements)
		require.Equal(t, movements[len(movements)-1].after, stored[id])
	}
	for range 20 {
		id := fmt.Sprint("account", random.IntN(pastAccounts))
		instant := begin.Add(-time.Second + time.Duration(random.Int64N(int64(time.Since(begin)))))
		after := instant.Add(-time.Duration(random.IntN(int(time.Minute))))
		b.RequireBalanceAt(id, instant, balanceAt(history[id], opening[id], instant))
		q := transfer.StatementQuery{After: after, Before: instant, Limit: random.IntN(5000), NewestFirst: random.IntN(2) == 0}
		requireExtract(b, id, q, history[id])
	}
}

// balanceAt returns an account's balance at an instant.
func balanceAt(movements []movement, opening int64, instant time.Time) int64 {
	for _, m := range slices.Backward(movements) {
		if !m.at.After(instant) {
			return m.after
		}
	}
	return opening
}

// requireExtract requires that a statement has those of an account's movements that its
// query selects.
func requireExtract(b *bank.Bank, account string, q transfer.StatementQuery, movements []movement) {
	b.T.Helper()
	movements = slices.Clone(movements)
	if q.NewestFirst {
		slices.Reverse(movements)
	}
	var want []movement
	for _, m := range movements {
		if m.at.Before(q.Before) && m.at.After(q.After) && (q.Limit == 0 || len(want) < q.Limit) {
			want = append(want, m)
		}
	}
	entries := b.MustStatement(b.MustLedger(""), account, q)
	require.Len(b.T, entries, len(want), "%+v", q)
	for i, e := range entries {
		require.Equal(b.T, []any{want[i].id, want[i].after}, []any{e.TransferID, bank.Units(b.T, e.Balance)}, "%+v", q)
	}
}
