package bank

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// NewShop returns a bank with orders. The orders o-1 and o-2 are unpaid.
func NewShop(t *testing.T, balances ...int64) *Bank {
	t.Helper()
	b := New(t, balances...)
	b.Coordinator = b.NewCoordinator(b.DB, Orders(b.DB)...)
	b.Insert("orders", Order("o-1"), Order("o-2"))
	return b
}

// Orders registers the documents orders.
func Orders(db *mongo.Database) []transfer.Option {
	return []transfer.Option{transfer.WithDocuments("orders", db.Collection("orders"))}
}

// Order returns an order that is unpaid.
func Order(id string) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "unpaid"}}
}

// Payment pays an order from a to b.
func Payment(id, order string, units int64) transfer.Request {
	req := Move(id, "a", "b", units)
	req.Effects = []transfer.Effect{{
		Documents: "orders", ID: order,
		Require: bson.D{{Key: "status", Value: "unpaid"}},
		Set:     bson.D{{Key: "status", Value: "paid"}, {Key: "paidBy", Value: id}},
	}}
	return req
}

// RequireOrder requires what is stored of an order, and whether a transfer has reserved
// it.
func (b *Bank) RequireOrder(id, status string, reserved bool) {
	b.T.Helper()
	document, err := b.DB.Collection("orders").FindOne(b.T.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(b.T, err)
	require.Equal(b.T, status, document.Lookup("status").StringValue())
	pending, _ := document.Lookup("pending").DocumentOK()
	elements, err := pending.Elements()
	require.NoError(b.T, err)
	require.Equal(b.T, reserved, len(elements) > 0)
}
