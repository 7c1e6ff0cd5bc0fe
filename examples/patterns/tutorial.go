package patterns

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// makeWhole turns amounts that the shell has stored as doubles into whole numbers. It
// returns how many documents are left without an amount: what they have is a double with
// a fraction, or no number, such as an array. A Decimal128 is an amount.
func makeWhole(ctx context.Context, c *mongo.Collection, field string) (left int64, err error) {
	whole := bson.D{
		{Key: field, Value: bson.D{{Key: "$type", Value: "double"}, {Key: "$gte", Value: -(1 << 53)}, {Key: "$lte", Value: 1 << 53}}},
		{Key: "$expr", Value: bson.D{{Key: "$cond", Value: bson.A{
			bson.D{{Key: "$isNumber", Value: "$" + field}},
			bson.D{{Key: "$eq", Value: bson.A{"$" + field, bson.D{{Key: "$trunc", Value: "$" + field}}}}}, false,
		}}}},
	}
	toLong := bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: bson.D{{Key: "$toLong", Value: "$" + field}}}}}}
	if _, err := c.UpdateMany(ctx, whole, mongo.Pipeline{toLong}); err != nil {
		return 0, err
	}
	exact := bson.D{{Key: "$in", Value: bson.A{bson.D{{Key: "$type", Value: "$" + field}}, bson.A{"int", "long", "decimal"}}}}
	return c.CountDocuments(ctx, bson.D{{Key: "$expr", Value: bson.D{{Key: "$not", Value: bson.A{exact}}}}})
}

// oldTransaction is a document of the tutorial's collection "transactions".
type oldTransaction struct {
	ID          any    `bson:"_id"`
	Source      any    `bson:"source"`
	Destination any    `bson:"destination"`
	Value       int64  `bson:"value"`
	State       string `bson:"state"`
}

// finishOld brings every transaction of the tutorial to its end. Nobody else may work on
// them, and it can be called again if it fails.
func finishOld(ctx context.Context, db *mongo.Database) error {
	ended := bson.A{"done", "canceled", "cancelled"}
	rows, err := db.Collection("transactions").Find(ctx,
		bson.D{{Key: "state", Value: bson.D{{Key: "$nin", Value: ended}}}})
	if err != nil {
		return err
	}
	var unfinished []oldTransaction
	if err := rows.All(ctx, &unfinished); err != nil {
		return err
	}
	for _, t := range unfinished {
		for t.State != "done" && t.State != "canceled" {
			next, err := stepOld(ctx, db.Collection("accounts"), t)
			if err != nil {
				return fmt.Errorf("transaction %v: %w", t.ID, err)
			}
			become := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: next}}}}
			if _, err := db.Collection("transactions").UpdateByID(ctx, t.ID, become); err != nil {
				return err
			}
			t.State = next
		}
	}
	return nil
}

// stepOld does for a transaction what its state asks for, and returns the state that it
// has then. An account is changed only where its pendingTransactions says that it has
// not been yet.
func stepOld(ctx context.Context, accounts *mongo.Collection, t oldTransaction) (next string, err error) {
	marked, unmarked := bson.D{{Key: "pendingTransactions", Value: t.ID}},
		bson.D{{Key: "pendingTransactions", Value: bson.D{{Key: "$ne", Value: t.ID}}}}
	switch t.State {
	case "initial": // nothing has moved: the library is asked for it later
		return "canceled", nil
	case "pending": // each of the two accounts may have been changed
		return "applied", changeBoth(ctx, accounts, t, unmarked, t.Value, "$push")
	case "applied", "committed": // both were; the tutorial has two names for it
		return "done", changeBoth(ctx, accounts, t, marked, 0, "$pull")
	case "canceling": // each may have been changed back
		return "canceled", changeBoth(ctx, accounts, t, marked, -t.Value, "$pull")
	}
	return "", fmt.Errorf("unknown state %q", t.State)
}

// changeBoth takes an amount from the source and gives it to the destination, and adds
// or removes their marks, where the accounts are as required.
func changeBoth(ctx context.Context, accounts *mongo.Collection, t oldTransaction, required bson.D, amount int64, mark string) error {
	for _, part := range []struct {
		account any
		change  int64
	}{{t.Source, -amount}, {t.Destination, amount}} {
		id := bson.D{{Key: "_id", Value: part.account}}
		found, err := accounts.CountDocuments(ctx, id)
		if err == nil && found == 0 {
			err = fmt.Errorf("there is no account %v", part.account)
		}
		if err != nil {
			return err
		}
		update := bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: part.change}}},
			{Key: mark, Value: bson.D{{Key: "pendingTransactions", Value: t.ID}}},
		}
		if _, err := accounts.UpdateOne(ctx, append(id, required...), update); err != nil {
			return err
		}
	}
	return nil
}
