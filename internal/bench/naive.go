package main

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// openNaive moves money with the two-phase commit of MongoDB's old tutorial: eight writes
// in a row.
func openNaive(_ context.Context, b *bank) (mover, error) {
	return stateless(func(ctx context.Context, orders []order) error {
		for _, o := range orders {
			// A transfer that has begun must end, because no other process would finish
			// it.
			if err := naiveTransfer(context.WithoutCancel(ctx), b, o); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func naiveTransfer(ctx context.Context, b *bank, o order) error {
	_, err := b.transfers.InsertOne(ctx, bson.D{
		{Key: "_id", Value: o.id}, {Key: "source", Value: b.names[o.from]}, {Key: "destination", Value: b.names[o.to]},
		{Key: "value", Value: o.amount}, {Key: "state", Value: "initial"}, {Key: "lastModified", Value: time.Now()},
	})
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return b.step(ctx, o.id, "initial", "pending") },
		func() error { return b.apply(ctx, b.names[o.from], o.id, -o.amount) },
		func() error { return b.apply(ctx, b.names[o.to], o.id, o.amount) },
		func() error { return b.step(ctx, o.id, "pending", "applied") },
		func() error { return b.unmark(ctx, b.names[o.from], o.id) },
		func() error { return b.unmark(ctx, b.names[o.to], o.id) },
		func() error { return b.step(ctx, o.id, "applied", "done") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// step brings a transfer from one state to the next.
func (b *bank) step(ctx context.Context, id, from, to string) error {
	return mustMatch(b.transfers.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: id}, {Key: "state", Value: from}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "state", Value: to}}},
			{Key: "$currentDate", Value: bson.D{{Key: "lastModified", Value: true}}},
		}))
}

// apply changes a balance and leaves a mark on the account.
func (b *bank) apply(ctx context.Context, account, id string, amount int64) error {
	return mustMatch(b.accounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: account}, {Key: "pendingTransactions", Value: bson.D{{Key: "$ne", Value: id}}}},
		bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}},
			{Key: "$push", Value: bson.D{{Key: "pendingTransactions", Value: id}}},
		}))
}

// unmark removes the mark.
func (b *bank) unmark(ctx context.Context, account, id string) error {
	return mustMatch(b.accounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: account}, {Key: "pendingTransactions", Value: id}},
		bson.D{{Key: "$pull", Value: bson.D{{Key: "pendingTransactions", Value: id}}}}))
}
