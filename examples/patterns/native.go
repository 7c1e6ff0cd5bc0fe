package patterns

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// errNoSuchAccount says that there is no account that can afford a payment, or none to
// get it.
var errNoSuchAccount = errors.New("no such account, or too little money")

// payNatively moves money by a transaction of MongoDB's own. The payment's document
// keeps a second call with the same ID from paying again.
func payNatively(ctx context.Context, db *mongo.Database, id, from, to string, cents int64) error {
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := db.Collection("payments").InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
			return nil, err
		}
		afford := bson.D{{Key: "_id", Value: from}, {Key: "balance", Value: bson.D{{Key: "$gte", Value: cents}}}}
		if err := addOne(ctx, db, afford, -cents); err != nil {
			return nil, err
		}
		return nil, addOne(ctx, db, bson.D{{Key: "_id", Value: to}}, cents)
	})
	if mongo.IsDuplicateKeyError(err) {
		return nil // it was paid before
	}
	return err
}

// addOne adds to the balance of the account that the filter finds.
func addOne(ctx context.Context, db *mongo.Database, filter bson.D, cents int64) error {
	change := bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: cents}}}}
	found, err := db.Collection("accounts").UpdateOne(ctx, filter, change)
	if err == nil && found.MatchedCount == 0 {
		return errNoSuchAccount
	}
	return err
}

// paidOrder is an order that says, from when it was stored and for good, in which way it
// is paid.
type paidOrder struct {
	ID      string `bson:"_id"`
	Buyer   string `bson:"buyer"`
	Price   int64  `bson:"price"`
	Through string `bson:"through,omitempty"` // "transfer", or nothing for orders from before
}

// payEither pays an order in its own way.
func payEither(ctx context.Context, db *mongo.Database, coord *transfer.Coordinator, o paidOrder) error {
	if o.Through != "transfer" {
		return payNatively(ctx, db, o.ID, o.Buyer, "shop", o.Price)
	}
	_, err := coord.Transfer(ctx, transfer.Request{
		ID: o.ID, From: o.Buyer, To: "shop", Amount: transfer.Units(o.Price),
	})
	return err
}
