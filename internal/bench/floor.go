package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// openFloor writes what the library leaves behind, and nothing else.
// One command inserts the finished transfers of a batch, and one changes the accounts.
// It asks for no balance, survives no crash, and keeps no index besides that of _id.
func openFloor(_ context.Context, b *bank) (mover, error) {
	unordered, inserting := options.BulkWrite().SetOrdered(false), options.InsertMany().SetOrdered(false)
	return stateless(func(ctx context.Context, orders []order) error {
		now := time.Now()
		documents := make([]any, len(orders))
		updates := make([]mongo.WriteModel, 0, 2*len(orders))
		for i, o := range orders {
			documents[i] = b.patterns.transferOf(o, b.names, now)
			updates = append(updates, b.adding(o.from, -o.amount), b.adding(o.to, o.amount))
		}
		// What has begun must end: half of it would make money.
		ctx = context.WithoutCancel(ctx)
		if _, err := b.transfers.InsertMany(ctx, documents, inserting); err != nil {
			return err
		}
		result, err := b.accounts.BulkWrite(ctx, updates, unordered)
		if err == nil && result.MatchedCount != int64(len(updates)) {
			err = fmt.Errorf("%d of %d accounts were there", result.MatchedCount, len(updates))
		}
		return err
	}), nil
}

func (b *bank) adding(account int, amount int64) mongo.WriteModel {
	return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: b.names[account]}}).SetUpdate(add(amount))
}
