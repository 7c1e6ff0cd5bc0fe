package audit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// newReader returns the reader of two ledgers on a server that doesn't exist. It sends
// nothing.
func newReader(t *testing.T) *Reader {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("bank")
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"),
		Ledgers:   map[string]*mongo.Collection{"": db.Collection("accounts"), "eu": db.Collection("accounts_eu")},
		Fields: document.Fields{
			Balance: "balance", Pending: "pending", Fence: "fence",
			Floor: "floor", Currency: "currency", Closed: "closed", Frozen: "frozen",
		},
		Now: time.Now,
	})
	require.NoError(t, err)
	return NewReader(catalog)
}

// account returns an account's document with a balance of 100 and some changes.
// A value of nil removes the field.
func account(t *testing.T, id any, changes bson.M) bson.Raw {
	t.Helper()
	account := bson.M{"_id": id, "balance": int64(100), "pending": bson.M{}, "fence": bson.ObjectID{1}}
	for key, value := range changes {
		account[key] = value
		if value == nil {
			delete(account, key)
		}
	}
	raw, err := bson.Marshal(account)
	require.NoError(t, err)
	return raw
}

// An audit's view of a document reports the error of each field, whatever is stored
// there, and counts a balance that is a number.
func TestDocument(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	require.Len(t, r.Collections, 2)
	require.Equal(t, "eu", r.Collections[1].Name)
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		require.NoError(t, err)
		return d
	}
	for _, row := range []struct {
		changes bson.M
		bad     Document
		counts  bool
	}{
		{nil, Document{}, true},
		{bson.M{"pending": nil, "fence": nil}, Document{}, true}, // missing
		{bson.M{"balance": "1"}, Document{BadBalance: "x"}, false},
		{bson.M{"balance": 1.0}, Document{BadBalance: "x"}, false},
		{bson.M{"balance": nil}, Document{BadBalance: "x"}, false},
		{bson.M{"balance": decimal("1.0000000000001")}, Document{BadBalance: "x"}, true},
		{bson.M{"floor": decimal("1")}, Document{BadFloor: "x"}, true},
		{bson.M{"floor": "1"}, Document{BadFloor: "x"}, true},
		{bson.M{"floor": bson.MinKey{}}, Document{}, true},
		{bson.M{"floor": int64(-5), "balance": decimal("1.5")}, Document{}, true},
		{bson.M{"currency": bson.Symbol("EUR")}, Document{}, true},
		{bson.M{"currency": bson.A{"EUR"}}, Document{BadCurrency: "x"}, true},
		{bson.M{"pending": bson.A{}}, Document{BadPending: "x"}, true},
		{bson.M{"pending": bson.Null{}}, Document{BadPending: "x"}, true},
		{bson.M{"pending": 5}, Document{BadPending: "x"}, true},
	} {
		d := r.document(r.Collections[0], account(t, "a", row.changes))
		assert.Equal(t, row.bad.BadBalance != "", d.BadBalance != "", row.changes)
		assert.Equal(t, row.bad.BadFloor != "", d.BadFloor != "", row.changes)
		assert.Equal(t, row.bad.BadCurrency != "", d.BadCurrency != "", row.changes)
		assert.Equal(t, row.bad.BadPending != "", d.BadPending != "", row.changes)
		assert.Empty(t, d.BadID, row.changes)
		assert.Equal(t, row.counts, d.Counts, row.changes)
	}
	for _, id := range []any{5, bson.NewObjectID(), "", bson.M{"a": 1}} {
		assert.NotEmpty(t, r.document(r.Collections[0], account(t, id, nil)).BadID, "%v", id)
	}
}
