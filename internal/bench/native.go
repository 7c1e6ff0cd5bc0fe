package main

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

var errRefused = errors.New("too little money, or no such account")

// openNative moves money with MongoDB's own transactions: two conditional updates and an
// insert.
// It does so as the driver's manual shows, with the driver's retries and the client's
// concerns.
func openNative(_ context.Context, b *bank) (mover, error) {
	return stateless(func(ctx context.Context, orders []order) error {
		for _, o := range orders {
			if err := nativeTransfer(ctx, b, o); err != nil {
				return err
			}
		}
		return nil
	}), b.db.CreateCollection(context.Background(), b.transfers.Name())
}

func nativeTransfer(ctx context.Context, b *bank, o order) error {
	session, err := b.client.StartSession()
	if err != nil {
		return err
	}
	// If the context ended, the driver could not abort, and the transaction would keep
	// its locks for a minute.
	lasting := context.WithoutCancel(ctx)
	defer session.EndSession(lasting)
	_, err = session.WithTransaction(lasting, func(lasting context.Context) (any, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		debit := bson.D{{Key: "_id", Value: b.names[o.from]}, {Key: "balance", Value: bson.D{{Key: "$gte", Value: o.amount}}}}
		if err := mustMatch(b.accounts.UpdateOne(lasting, debit, add(-o.amount))); err != nil {
			return nil, err
		}
		credit := bson.D{{Key: "_id", Value: b.names[o.to]}}
		if err := mustMatch(b.accounts.UpdateOne(lasting, credit, add(o.amount))); err != nil {
			return nil, err
		}
		_, err := b.transfers.InsertOne(lasting, plainTransfer(b, o, time.Now()))
		return nil, err
	})
	return err
}

// plainAccount returns the smallest document that an account can be.
func plainAccount(_ *bank, name string) any {
	return bson.D{{Key: "_id", Value: name}, {Key: "balance", Value: firstBalance}}
}

// plainTransfer returns the transfer document of the contenders without states.
func plainTransfer(b *bank, o order, at time.Time) any {
	return bson.D{
		{Key: "_id", Value: o.id}, {Key: "from", Value: b.names[o.from]}, {Key: "to", Value: b.names[o.to]},
		{Key: "amount", Value: o.amount}, {Key: "createdAt", Value: at},
	}
}

func add(amount int64) bson.D {
	return bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}}}
}

// mustMatch returns an error if an update matched nothing.
func mustMatch(result *mongo.UpdateResult, err error) error {
	if err == nil && result.MatchedCount != 1 {
		return errRefused
	}
	return err
}
