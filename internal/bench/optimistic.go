package main

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// versioned is an account whose version grows by one with every update.
type versioned struct {
	ID      string `bson:"_id"`
	Balance int64  `bson:"balance"`
	Version int64  `bson:"version"`
}

func versionedAccount(_ *bank, name string) any { return versioned{ID: name, Balance: firstBalance} }

// openOptimistic moves money with updates that match the version that was read.
// Its two updates are not atomic together.
func openOptimistic(_ context.Context, b *bank) (mover, error) {
	return stateless(func(ctx context.Context, orders []order) error {
		for _, o := range orders {
			if err := optimisticTransfer(ctx, b, o); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func optimisticTransfer(ctx context.Context, b *bank, o order) error {
	from, to := b.names[o.from], b.names[o.to]
	// Both accounts are read at once at first.
	// Later only the one is read whose version was another.
	read, err := b.read(ctx, from, to)
	if err != nil {
		return err
	}
	for done := false; !done; {
		// A debit that was sent is waited for, even at the end, because nothing else
		// would know of it.
		if done, err = b.replace(context.WithoutCancel(ctx), read[from], -o.amount); err == nil && !done {
			read, err = b.reread(ctx, read, from)
		}
		if err != nil {
			return err
		}
	}
	// From here on, only finishing keeps the money.
	ctx = context.WithoutCancel(ctx)
	for done := false; !done; {
		if done, err = b.replace(ctx, read[to], o.amount); err == nil && !done {
			read, err = b.reread(ctx, read, to)
		}
		if err != nil {
			return err
		}
	}
	_, err = b.transfers.InsertOne(ctx, plainTransfer(b, o, time.Now()))
	return err
}

func (b *bank) read(ctx context.Context, ids ...string) (map[string]versioned, error) {
	cursor, err := b.accounts.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return nil, err
	}
	var list []versioned
	if err := cursor.All(ctx, &list); err != nil {
		return nil, err
	}
	if len(list) != len(ids) {
		return nil, errRefused
	}
	accounts := make(map[string]versioned, len(list))
	for _, account := range list {
		accounts[account.ID] = account
	}
	return accounts, nil
}

// reread reads one account again.
func (b *bank) reread(ctx context.Context, accounts map[string]versioned, id string) (map[string]versioned, error) {
	again, err := b.read(ctx, id)
	if err == nil {
		accounts[id] = again[id]
	}
	return accounts, err
}

// replace changes a balance, and returns false if another update was first.
func (b *bank) replace(ctx context.Context, a versioned, amount int64) (bool, error) {
	if a.Balance+amount < 0 {
		return false, errRefused
	}
	result, err := b.accounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: a.ID}, {Key: "version", Value: a.Version}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: a.Balance + amount}, {Key: "version", Value: a.Version + 1}}}})
	return err == nil && matched(result), err
}

func matched(result *mongo.UpdateResult) bool { return result.MatchedCount == 1 }
