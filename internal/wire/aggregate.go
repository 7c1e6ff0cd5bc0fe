package wire

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Aggregate runs a pipeline that yields a few documents, and returns them.
// What a process reads once, when it begins, is read by aggregations.
// So a log of commands distinguishes it from what is read for a transfer, by a find.
func Aggregate(
	ctx context.Context, c *mongo.Collection, pipeline bson.A, opts ...options.Lister[options.AggregateOptions],
) ([]bson.Raw, error) {
	cursor, err := c.Aggregate(ctx, pipeline, opts...)
	if err != nil {
		return nil, ServerErrorOf(err, RightFind, NamespaceOf(c))
	}
	var documents []bson.Raw
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, ServerErrorOf(err, RightFind, NamespaceOf(c))
	}
	return documents, nil
}

// Sample reads at most limit documents that a filter selects, by an aggregation.
func Sample(ctx context.Context, c *mongo.Collection, filter bson.D, limit int) ([]bson.Raw, error) {
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: filter}},
		bson.D{{Key: "$limit", Value: int64(limit)}},
	}
	return Aggregate(ctx, c, pipeline, options.Aggregate().SetBatchSize(int32(limit+1)))
}
