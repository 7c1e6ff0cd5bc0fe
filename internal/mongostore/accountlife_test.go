package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// An account is opened once, with exactly the fields that it needs, and comes back as it was.
func TestOpenAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	token := bson.NewObjectID()
	for _, row := range []struct {
		account document.Account
		stored  bson.M
	}{
		{document.Account{ID: "plain", Balance: money.Units(5)}, bson.M{"balance": int64(5)}},
		{document.Account{ID: "decimal", Balance: dec("5.50"), Floor: dec("-1.5")}, bson.M{"balance": decimal("5.50"), "floor": decimal("-1.5")}},
		{document.Account{ID: "world", NoFloor: true, Currency: "EUR"}, bson.M{"balance": int64(0), "floor": bson.MinKey{}, "currency": "EUR"}},
		{document.Account{ID: "more", Metadata: encode(bson.M{"a": "b"})}, bson.M{"balance": int64(0), "metadata": bson.M{"a": "b"}}},
	} {
		result, err := b.store.Open(t.Context(), "", row.account, token)
		require.NoError(t, err)
		require.Equal(t, protocol.Applied, result)
		row.stored["_id"], row.stored["pending"], row.stored["fence"] = row.account.ID, bson.M{}, token
		b.has("accounts", row.stored)
		got, found, err := b.store.Get(t.Context(), "", row.account.ID)
		require.NoError(t, err)
		require.True(t, found)
		row.account.Reserved, row.account.Incoming = money.Zero(row.account.Balance.Kind()), money.Zero(row.account.Balance.Kind())
		assert.Equal(t, row.account, got)

		result, err = b.store.Open(t.Context(), "", document.Account{ID: row.account.ID}, bson.NewObjectID())
		require.Error(t, err)
		assert.Equal(t, protocol.NotMatched, result)
		b.has("accounts", row.stored)
		standing, err := b.store.Status(t.Context(), "", row.account.ID)
		require.NoError(t, err)
		assert.True(t, standing.OpenedWith(token))
		assert.False(t, standing.OpenedWith(bson.NewObjectID()))
	}
}

// What is in flight on an account is told apart: what debits hold, and what credits will bring.
func TestAccountShowsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"pending": bson.M{"a": int64(-60), "b": int64(7), "c": int32(-1), "d": int64(0)}}))
	got, _, err := b.store.Get(t.Context(), "", "alice")
	require.NoError(t, err)
	assert.Equal(t, money.Units(61), got.Reserved)
	assert.Equal(t, money.Units(7), got.Incoming)
	for _, spoilt := range []any{"text", 1.5, dec("1").Value()} {
		b.change("accounts", "alice", bson.M{"$set": bson.M{"pending.e": spoilt}})
		_, _, err = b.store.Get(t.Context(), "", "alice")
		require.Error(t, err, "%v", spoilt)
	}
	_, found, err := b.store.Get(t.Context(), "", "nobody")
	require.NoError(t, err)
	assert.False(t, found)
}

// Only an open account without money and without transfers in flight is closed; a closed one is opened as it was.
func TestCloseAndReopen(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for name, row := range map[string]struct {
		changes bson.M
		closes  bool
	}{
		"empty":              {nil, true},
		"empty, int32":       {bson.M{"balance": int32(0)}, true},
		"empty, decimal":     {bson.M{"balance": decimal("0.00")}, true},
		"empty, no pending":  {bson.M{"pending": nil}, true},
		"closed: false":      {bson.M{"closed": false}, true},
		"money":              {bson.M{"balance": int64(1)}, false},
		"debt":               {bson.M{"balance": int64(-1)}, false},
		"a little money":     {bson.M{"balance": decimal("0.000000000001")}, false},
		"transfer in flight": {bson.M{"pending": bson.M{"order": int64(5)}}, false},
		"effect in flight":   {bson.M{"pending": bson.M{"order": int64(0)}}, false},
		"closed":             {bson.M{"closed": true}, false},
	} {
		document := account(name, bson.M{"balance": int64(0)})
		for key, value := range row.changes {
			document[key] = value
			if value == nil {
				delete(document, key)
			}
		}
		b.put(document)
		result, err := b.store.Close(t.Context(), "", name)
		require.NoError(t, err)
		if !row.closes {
			assert.Equal(t, protocol.NotMatched, result, name)
			b.has("accounts", document)
			continue
		}
		require.Equal(t, protocol.Applied, result, name)
		document["closed"] = true
		b.has("accounts", document)
		standing, err := b.store.Status(t.Context(), "", name)
		require.NoError(t, err)
		assert.True(t, standing.Found && standing.Closed && standing.Empty && standing.Markers == 0, name)
		w := b.work("order", b.leg(name, 1))
		assert.Equal(t, protocol.NotMatched, b.on(w, b.ready(w)[0]).Result, "a closed account takes a credit")
		for _, want := range []protocol.Result{protocol.Applied, protocol.NotMatched} {
			result, err = b.store.Reopen(t.Context(), "", name)
			require.NoError(t, err)
			assert.Equal(t, want, result)
		}
		delete(document, "closed")
		b.has("accounts", document)
	}
	standing, err := b.store.Status(t.Context(), "", "nobody")
	require.NoError(t, err)
	assert.Equal(t, accounts.Status{}, standing)
}
