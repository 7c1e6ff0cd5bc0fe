package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Mark stands for a transfer as it is stored: what changes when anything happens to it.
// "" is that of none.
type Mark string

// markFields returns the fields of a transfer that a mark is made of.
func markFields() []string {
	return []string{"state", "epoch", "held", "lastModified", "expiresAt", "stuckAt"}
}

// markOf makes the mark of a document, whole or as [Store.Glance] asks for it.
func markOf(document bson.Raw) Mark {
	mark := make([]byte, 0, 128)
	for _, field := range markFields() {
		value := document.Lookup(field)
		mark = append(mark, byte(value.Type))
		mark = append(mark, value.Value...)
	}
	return Mark(mark)
}

// Sight is one of several transfers as a read has found it.
type Sight struct {
	Transfer Transfer
	Mark     Mark
	Err      error // ErrUnreadable
}

// GetTransfers is GetTransfer of several transfers at once; those that don't exist are
// left out. A lone one is found in the way that is the quickest for the server.
func (s *Queries) GetTransfers(ctx context.Context, ids []string) (map[string]Sight, error) {
	found := make(map[string]Sight, len(ids))
	err := eachOf(ctx, s.majority, ids, options.Find(), func(id string, document bson.Raw) {
		t, err := decodeTransfer(document)
		found[id] = Sight{Transfer: t, Mark: markOf(document), Err: err}
	})
	return found, err
}

// Glance returns the marks of transfers as a majority has them stored; those that don't
// exist are left out.
func (s *Queries) Glance(ctx context.Context, ids []string) (map[string]Mark, error) {
	found := make(map[string]Mark, len(ids))
	fields := bson.D{}
	for _, field := range markFields() {
		fields = append(fields, bson.E{Key: field, Value: 1})
	}
	find := options.Find().SetProjection(fields)
	err := eachOf(ctx, s.majority, ids, find, func(id string, document bson.Raw) {
		found[id] = markOf(document)
	})
	return found, err
}

// Existing returns which of several transfers exist, by a deciding read.
func (s *Queries) Existing(ctx context.Context, ids []string) (map[string]bool, error) {
	found := make(map[string]bool, len(ids))
	find := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})
	err := eachOf(ctx, s.linearizable, ids, find, func(id string, _ bson.Raw) { found[id] = true })
	return found, err
}

// eachOf reads documents by their IDs, in one command unless they are very large.
func eachOf(
	ctx context.Context, from *mongo.Collection, ids []string, find *options.FindOptionsBuilder, each func(string, bson.Raw),
) error {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	if len(ids) == 1 {
		filter = bson.D{{Key: "_id", Value: ids[0]}}
		find.SetLimit(-1) // and no cursor is left open
	}
	ctx = detached(ctx)
	cursor, err := from.Find(ctx, filter, find.SetBatchSize(int32(len(ids)+1)))
	if err != nil {
		return serverErrorOf(err, rightFind, namespaceOf(from))
	}
	defer func() {
		closing, cancel := withLimit(context.WithoutCancel(ctx), CommandLimit)
		defer cancel()
		_ = cursor.Close(closing)
	}()
	for cursor.Next(ctx) {
		if id, ok := cursor.Current.Lookup("_id").StringValueOK(); ok {
			each(id, cursor.Current)
		}
	}
	return serverErrorOf(cursor.Err(), rightFind, namespaceOf(from))
}
