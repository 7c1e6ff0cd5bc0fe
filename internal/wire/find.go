package wire

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// FindID reads a document by its _id, by an aggregation: see [Aggregate].
func FindID(ctx context.Context, c *mongo.Collection, id any) (bson.Raw, error) {
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: id}}}}
	found, err := Aggregate(ctx, c, bson.A{match}, options.Aggregate().SetBatchSize(2))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, mongo.ErrNoDocuments
	}
	return found[0], nil
}

// FindByID reads documents, by as many commands as their IDs need.
func FindByID(ctx context.Context, from *mongo.Collection, ids bson.A, find *options.FindOptionsBuilder) ([]bson.Raw, error) {
	var found []bson.Raw
	for some := range Portions(ids, MaxCommandBytes, idBytes) {
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: some}}}}
		var documents []bson.Raw
		if err := FindAll(ctx, from, filter, &documents, find.SetBatchSize(int32(len(some)+1))); err != nil {
			return found, err
		}
		found = append(found, documents...)
	}
	return found, nil
}

// FindOne reads one document.
func FindOne(
	ctx context.Context, from *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOneOptions],
) (bson.Raw, error) {
	document, err := from.FindOne(ctx, filter, opts...).Raw()
	if NotFound(err) {
		return nil, err
	}
	return document, ServerErrorOf(err, RightFind, NamespaceOf(from))
}

// FindAll reads all documents that a filter selects.
func FindAll(
	ctx context.Context, from *mongo.Collection, filter bson.D, into any, opts ...options.Lister[options.FindOptions],
) error {
	cursor, err := from.Find(ctx, filter, opts...)
	if err == nil {
		err = cursor.All(ctx, into)
	}
	return ServerErrorOf(err, RightFind, NamespaceOf(from))
}

// EachByID reads documents by their IDs, in one command unless they are very large.
func EachByID(
	ctx context.Context, from *mongo.Collection, ids []string, find *options.FindOptionsBuilder, each func(string, bson.Raw),
) error {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	if len(ids) == 1 {
		filter = bson.D{{Key: "_id", Value: ids[0]}}
		find.SetLimit(-1) // and no cursor is left open
	}
	ctx = Detached(ctx)
	cursor, err := from.Find(ctx, filter, find.SetBatchSize(int32(len(ids)+1)))
	if err != nil {
		return ServerErrorOf(err, RightFind, NamespaceOf(from))
	}
	defer func() {
		closing, cancel := WithTimeout(context.WithoutCancel(ctx), CommandLimit)
		defer cancel()
		_ = cursor.Close(closing)
	}()
	for cursor.Next(ctx) {
		if id, ok := cursor.Current.Lookup("_id").StringValueOK(); ok {
			each(id, cursor.Current)
		}
	}
	return ServerErrorOf(cursor.Err(), RightFind, NamespaceOf(from))
}
