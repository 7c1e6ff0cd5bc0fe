package accounts_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// amount returns a decimal amount.
func amount(t *testing.T, text string) money.Amount {
	t.Helper()
	a, err := money.Parse(text)
	require.NoError(t, err)
	return a
}

// decimal returns a decimal as it is stored.
func decimal(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	require.NoError(t, err)
	return d
}

func encode(t *testing.T, document any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(document)
	require.NoError(t, err)
	return raw
}

// An account is opened once, with exactly the fields that it needs, and is read as it was
// opened.
func TestOpenAccount(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	token := bson.NewObjectID()
	for _, row := range []struct {
		account document.Account
		stored  bson.M
	}{
		{document.Account{ID: "plain", Balance: money.Units(5)}, bson.M{"balance": int64(5)}},
		{
			document.Account{ID: "decimal", Balance: amount(t, "5.50"), Floor: amount(t, "-1.5")},
			bson.M{"balance": decimal(t, "5.50"), "floor": decimal(t, "-1.5")},
		},
		{document.Account{ID: "world", NoFloor: true, Currency: "EUR"}, bson.M{"balance": int64(0), "floor": bson.MinKey{}, "currency": "EUR"}},
		{document.Account{ID: "more", Metadata: encode(t, bson.M{"a": "b"})}, bson.M{"balance": int64(0), "metadata": bson.M{"a": "b"}}},
	} {
		result, err := b.Store.Open(t.Context(), "", row.account, token)
		require.NoError(t, err)
		require.Equal(t, protocol.Applied, result)
		row.stored["_id"], row.stored["pending"], row.stored["fence"] = row.account.ID, bson.M{}, token
		b.Has("accounts", row.stored)
		got, found, err := b.Store.Get(t.Context(), "", row.account.ID)
		require.NoError(t, err)
		require.True(t, found)
		row.account.Reserved, row.account.Incoming = money.Zero(row.account.Balance.Kind()), money.Zero(row.account.Balance.Kind())
		assert.Equal(t, row.account, got)

		result, err = b.Store.Open(t.Context(), "", document.Account{ID: row.account.ID}, bson.NewObjectID())
		require.Error(t, err)
		assert.Equal(t, protocol.NotMatched, result)
		b.Has("accounts", row.stored)
		status, err := b.Store.Status(t.Context(), "", row.account.ID)
		require.NoError(t, err)
		assert.True(t, status.OpenedWith(token))
		assert.False(t, status.OpenedWith(bson.NewObjectID()))
	}
}

// An account shows separately what debits in flight hold and what credits in flight will
// bring.
func TestAccountShowsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"a": int64(-60), "b": int64(7), "c": int32(-1), "d": int64(0)}}))
	got, _, err := b.Store.Get(t.Context(), "", "alice")
	require.NoError(t, err)
	assert.Equal(t, money.Units(61), got.Reserved)
	assert.Equal(t, money.Units(7), got.Incoming)
	for _, spoilt := range []any{"text", 1.5, amount(t, "1").Value()} {
		b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending.e": spoilt}})
		_, _, err = b.Store.Get(t.Context(), "", "alice")
		require.Error(t, err, "%v", spoilt)
	}
	_, found, err := b.Store.Get(t.Context(), "", "nobody")
	require.NoError(t, err)
	assert.False(t, found)
}

// Only an open account without money and without transfers in flight is closed. A closed
// account is reopened as it was.
func TestCloseAndReopen(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for name, row := range map[string]struct {
		changes bson.M
		closes  bool
	}{
		"empty":              {nil, true},
		"empty, int32":       {bson.M{"balance": int32(0)}, true},
		"empty, decimal":     {bson.M{"balance": decimal(t, "0.00")}, true},
		"empty, no pending":  {bson.M{"pending": nil}, true},
		"closed: false":      {bson.M{"closed": false}, true},
		"money":              {bson.M{"balance": int64(1)}, false},
		"debt":               {bson.M{"balance": int64(-1)}, false},
		"a little money":     {bson.M{"balance": decimal(t, "0.000000000001")}, false},
		"transfer in flight": {bson.M{"pending": bson.M{"order": int64(5)}}, false},
		"effect in flight":   {bson.M{"pending": bson.M{"order": int64(0)}}, false},
		"closed":             {bson.M{"closed": true}, true},
		"another fence":      {bson.M{"fence": bson.NewObjectID()}, false},
	} {
		document := storetest.Account(name, bson.M{"balance": int64(0)})
		for key, value := range row.changes {
			document[key] = value
			if value == nil {
				delete(document, key)
			}
		}
		b.Put(document)
		fence, token := storetest.Fence0(), bson.NewObjectID()
		result := setClosed(b, name, true, fence, token)
		if !row.closes {
			assert.Equal(t, protocol.NotMatched, result, name)
			b.Has("accounts", document)
			continue
		}
		require.Equal(t, protocol.Applied, result, name)
		document["closed"], document["fence"] = true, token
		b.Has("accounts", document)
		require.Equal(t, protocol.NotMatched, setClosed(b, name, true, fence, bson.NewObjectID()), "the same message, again")
		status, err := b.Store.Status(t.Context(), "", name)
		require.NoError(t, err)
		assert.True(t, status.Found && status.Closed && status.Empty && status.Markers == 0, name)
		w := b.Attempt("order", b.Leg(name, 1))
		assert.Equal(t, protocol.NotMatched, b.On(w, b.Ready(w)[0]).Result, "a closed account takes a credit")
		fence, token = token, bson.NewObjectID()
		require.Equal(t, protocol.Applied, setClosed(b, name, false, fence, token))
		require.Equal(t, protocol.NotMatched, setClosed(b, name, false, fence, bson.NewObjectID()), "the same message, again")
		delete(document, "closed")
		document["fence"] = token
		b.Has("accounts", document)
	}
	status, err := b.Store.Status(t.Context(), "", "nobody")
	require.NoError(t, err)
	assert.Equal(t, accounts.Status{}, status)
}

// setClosed closes or reopens an account that has a fence.
func setClosed(b *storetest.Bank, id string, closed bool, fence, token bson.ObjectID) protocol.Result {
	b.T.Helper()
	_, result, err := b.Store.Change(b.T.Context(), "", id, document.FenceOfToken(fence), accounts.Change{Closed: &closed}, token)
	require.NoError(b.T, err)
	return result
}

// An account whose markers are not a map is not read and not closed, even without money.
func TestGarbledMarkers(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	for what, pending := range storetest.Garbled("order", int64(-60)) {
		b.Put(
			storetest.Account(what, bson.M{"pending": pending}),
			storetest.Account("empty, "+what, bson.M{"pending": pending, "balance": int64(0)}),
		)
		_, found, err := b.Store.Get(t.Context(), "", what)
		assert.True(t, found)
		require.ErrorIs(t, err, document.ErrGarbled, what)
		for _, id := range []string{what, "empty, " + what} {
			assert.Equal(t, protocol.NotMatched, setClosed(b, id, true, storetest.Fence0(), bson.NewObjectID()), id)
			status, err := b.Store.Status(t.Context(), "", id)
			require.NoError(t, err)
			assert.True(t, status.Malformed, id)
		}
	}
}

// A debit is in flight until its transfer is committed, wherever the account is. What
// says nothing of a commit leaves it in flight.
func TestDebitsOfCommittedTransfers(t *testing.T) {
	t.Parallel()
	for _, sameClient := range []bool{true, false} {
		b := storetest.New(t)
		b.Store.Ledgers[""].SameClient = sameClient
		pending := bson.M{"paid%": int64(9), "in": int64(3), "lost": int64(-1), "%zz": int64(-1)}
		for i, state := range []string{"Initiated", "Preparing", "Committed", "Success", "Rollback", "Fail", "Frozen"} {
			pending[state] = int64(-10) << i
			b.PutIn("transfers", bson.M{"_id": state, "state": state})
		}
		b.PutIn("transfers", bson.M{"_id": "part", "state": "Committed", "posted": int64(4)}, bson.M{"_id": "in", "state": "Committed"})
		pending["part"] = int64(-5)
		b.Put(storetest.Account("alice", bson.M{"pending": pending}))
		got, found, err := b.Store.Get(t.Context(), "", "alice")
		require.NoError(t, err)
		require.True(t, found)
		assert.Equal(t, money.Units(1+1+1+10+20+160+320+640), got.Reserved)
		assert.Equal(t, money.Units(3), got.Incoming)
		for _, none := range []any{int64(5), int64(6), int64(0), int64(-1), bson.NewDecimal128(0x3040000000000000, 4)} {
			b.Change("transfers", "part", bson.M{"$set": bson.M{"posted": none}})
			got, _, err = b.Store.Get(t.Context(), "", "alice")
			require.NoError(t, err)
			assert.Equal(t, money.Units(1+1+5+10+20+160+320+640), got.Reserved, "%v is no part of 5", none)
		}
		b.Change("transfers", "part", bson.M{"$set": bson.M{"posted": "4"}})
		_, found, err = b.Store.Get(t.Context(), "", "alice")
		assert.True(t, found, "and it can't be read")
		require.ErrorContains(t, err, "part")
	}
}
