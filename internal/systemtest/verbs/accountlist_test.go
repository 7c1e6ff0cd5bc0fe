package verbs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// listed returns the IDs of the accounts that a query selects.
func listed(t *testing.T, c *transfer.Coordinator, q transfer.AccountQuery) []string {
	t.Helper()
	var ids []string
	for a, err := range c.Accounts(t.Context(), q) {
		require.NoError(t, err)
		require.Equal(t, q.Ledger, a.Ledger)
		ids = append(ids, a.ID)
	}
	return ids
}

// fill inserts accounts with a currency in turn, and returns all IDs in their order.
func fill(b *bank.Bank, count int, id func(i int) (stored any, name string), currencies ...any) []string {
	b.T.Helper()
	var names []string
	var documents []any
	for i := range count {
		stored, name := id(i)
		names = append(names, name)
		document := bson.M{"_id": stored, "balance": int64(i)}
		if currency := currencies[i%len(currencies)]; currency != nil {
			document["currency"] = currency
		}
		documents = append(documents, document)
	}
	b.Insert("accounts", documents...)
	slices.Sort(names)
	return names
}

// Every account is listed once, in the order of the IDs, over any number of pages,
// however IDs are stored, from any place on, and up to any limit.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const count = 600 // three pages
	for name, row := range map[string]struct {
		opts []transfer.Option
		id   func(i int) (any, string)
		no   string // an ID that no account has, after all others
	}{
		"texts": {nil, func(i int) (any, string) {
			id := fmt.Sprintf("%d-ä", i*7919%count)
			return id, id
		}, "\U0010ffff"},
		"ObjectIds": {[]transfer.Option{transfer.WithAccountIDs(transfer.ObjectIDs)}, func(i int) (any, string) {
			id := bson.ObjectID{byte(i * 7919 % count), byte(i)} // the first is zero
			return id, id.Hex()
		}, "ffffffffffffffffffffffff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBare(t, row.opts...)
			all := fill(b, count, row.id, nil, "EUR", nil)
			require.Equal(t, all, listed(t, b.Coordinator, transfer.AccountQuery{}))
			for _, size := range []int{1, 255, 256, 257, count - 1, count, count + 1} {
				require.Equal(t, all[:min(size, count)], listed(t, b.Coordinator, transfer.AccountQuery{Limit: size}))
				var paged []string
				for q := (transfer.AccountQuery{Limit: max(size, 50)}); ; {
					page := listed(t, b.Coordinator, q)
					paged = append(paged, page...)
					if len(page) < q.Limit {
						break
					}
					q.Beyond = page[len(page)-1]
				}
				require.Equal(t, all, paged)
			}
			require.Empty(t, listed(t, b.Coordinator, transfer.AccountQuery{Beyond: row.no}))
			require.NotContains(t, listed(t, b.Coordinator, transfer.AccountQuery{Beyond: all[10]}), all[10])

			euros := listed(t, b.Coordinator, transfer.AccountQuery{Currency: "EUR"})
			require.Len(t, euros, count/3)
			require.True(t, slices.IsSorted(euros))
			require.Equal(t, euros[3:5], listed(t, b.Coordinator, transfer.AccountQuery{Currency: "EUR", Beyond: euros[2], Limit: 2}))
			require.Empty(t, listed(t, b.Coordinator, transfer.AccountQuery{Currency: "USD"}))
		})
	}
}

// A list shows each account as GetAccount does, also what is in flight, and whether a
// debit's transfer is committed.
// What is no account comes with an error and its ID, and the rest follows.
func TestAccountsAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 50)
	b.MustHold("held", 10, time.Hour)
	b.LeaveTraces("done", 5, "Committed", bank.Reserved, bank.Done)
	mustUpdate(t, b.Coordinator, "c", transfer.AccountChange{
		Frozen: pointer(true), Floor: pointer(transfer.Units(60)), Metadata: map[string]any{"name": "Cara"},
	})
	b.Insert("accounts",
		bson.M{"_id": "bad", "balance": 1.5}, bson.M{"_id": "bad map", "balance": int64(1), "pending": bson.A{}},
		bson.M{"_id": int64(7), "balance": int64(1)}, bson.M{"_id": "z", "balance": bson.NewDecimal128(0x3040000000000000, 7)})
	var ids, bad []string
	for got, err := range b.Accounts(t.Context(), transfer.AccountQuery{}) {
		ids = append(ids, got.ID)
		if err != nil {
			require.ErrorIs(t, err, transfer.ErrAmountKind)
			require.Equal(t, transfer.Account{ID: got.ID}, got)
			bad = append(bad, got.ID)
			continue
		}
		want, err := b.GetAccount(t.Context(), got.ID)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, []string{"a", "b", "bad", "bad map", "c", "z"}, ids)
	require.Equal(t, []string{"bad", "bad map"}, bad)
	require.Equal(t, []string{"c", "z"}, listed(t, b.Coordinator, transfer.AccountQuery{Beyond: "bad map"}))
}

// A list reads a page when it is asked for it, and not before: whoever stops early, or
// walks slowly, needs no more than a page.
func TestAccountsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	fill(b, 600, func(i int) (any, string) { id := fmt.Sprintf("%03d", i); return id, id }, nil)
	w := &bank.Wire{At: -1, Idle: true}
	c := b.NewCoordinator(b.Through(w.Client()))
	_, err := c.GetAccount(t.Context(), "000")
	require.NoError(t, err)
	w.SetIdle(false)
	n := 0
	for _, err := range c.Accounts(t.Context(), transfer.AccountQuery{}) {
		require.NoError(t, err)
		n++
		require.Len(t, w.SentSoFar(), (n+255)/256, "reads, at account %d", n)
		if n == 300 {
			break
		}
	}
	require.Equal(t, []string{"find", "find"}, w.SentSoFar())
}

// Accounts of a ledger are those of its collection. A read that fails is repeated, and a
// query that can't be meant is refused.
func TestAccountsOfALedger(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	b.Coordinator = b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("europe")))
	b.Insert("europe", bson.M{"_id": "e", "balance": int64(1)})
	b.Insert("accounts", bson.M{"_id": "a", "balance": int64(1)})
	require.Equal(t, []string{"e"}, listed(t, b.Coordinator, transfer.AccountQuery{Ledger: "eu"}))
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost} {
		w := &bank.Wire{What: what, To: "europe"}
		db := b.Through(w.Client())
		c := b.NewCoordinator(db, transfer.WithLedger("eu", db.Collection("europe")))
		require.Equal(t, []string{"e"}, listed(t, c, transfer.AccountQuery{Ledger: "eu"}))
		require.True(t, w.HasStruck(), "%v", w.SentSoFar())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, bank.FirstError(b.Accounts(ended, transfer.AccountQuery{})), context.Canceled)
	for says, q := range map[string]transfer.AccountQuery{
		"is not registered": {Ledger: "us"}, "the Limit is negative": {Limit: -1}, "Beyond: ": {Beyond: "\xff"}, "a currency": {Currency: "\xff"},
	} {
		err := bank.FirstError(b.Accounts(t.Context(), q))
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		require.ErrorContains(t, err, says)
	}
	byObjectIDs := bank.NewBare(t, transfer.WithAccountIDs(transfer.ObjectIDs))
	err := bank.FirstError(byObjectIDs.Accounts(t.Context(), transfer.AccountQuery{Beyond: "x"}))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.ErrorContains(t, err, "Beyond: ")
}

// OpenAccount returns an account as it is read back.
func TestOpenAccountReturnsWhatIsStored(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithAccountIDs(transfer.ObjectIDs)})
	opened, err := b.OpenAccount(t.Context(), transfer.Account{
		ID: "0123456789ABCDEF01234567", Metadata: map[string]any{"n": 1, "at": time.Unix(1, 0), "in": map[string]any{"a": "b"}},
	})
	require.NoError(t, err)
	read, err := b.GetAccount(t.Context(), opened.ID)
	require.NoError(t, err)
	require.Equal(t, read, opened)
	require.Equal(t, "0123456789abcdef01234567", opened.ID)
}
