package patterns

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// addCents writes balances in euros as cents into a field of their own, where there is
// none yet. It returns how many accounts are left without: their balance is no number, is
// beyond ten billion euros, or has a fraction of a cent. Nobody else may write balances.
func addCents(ctx context.Context, accounts *mongo.Collection) (left int64, err error) {
	exact := bson.D{{Key: "$multiply", Value: bson.A{"$balance", 100}}}
	round := bson.D{{Key: "$round", Value: bson.A{exact}}}
	apart := bson.D{{Key: "$abs", Value: bson.A{bson.D{{Key: "$subtract", Value: bson.A{exact, round}}}}}}
	without := bson.E{Key: "cents", Value: bson.D{{Key: "$exists", Value: false}}}
	inCents := bson.D{
		without,
		{Key: "balance", Value: bson.D{{Key: "$gte", Value: -1e10}, {Key: "$lte", Value: 1e10}}},
		{Key: "$expr", Value: bson.D{{Key: "$cond", Value: bson.A{
			bson.D{{Key: "$isNumber", Value: "$balance"}}, bson.D{{Key: "$lt", Value: bson.A{apart, 0.001}}}, false,
		}}}},
	}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "cents", Value: bson.D{{Key: "$toLong", Value: round}}}}}}
	if _, err := accounts.UpdateMany(ctx, inCents, mongo.Pipeline{set}); err != nil {
		return 0, err
	}
	return accounts.CountDocuments(ctx, bson.D{without})
}
