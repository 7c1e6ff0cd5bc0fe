package mongostore

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Query selects transfers; its zero value selects all of them.
type Query struct {
	States          []protocol.State
	Ledger, Account string
	ByLedger        bool // whether Ledger counts where Account is ""
	After, Before   time.Time
	Metadata        map[string]any
	Limit           int
}

// GetTransfer reads what a majority has stored; false: there is no such transfer.
func (s *Store) GetTransfer(ctx context.Context, id string) (Transfer, bool, error) {
	document, err := s.majority.FindOne(detached(ctx), bson.D{{Key: "_id", Value: id}}).Raw()
	if missing(err) {
		return Transfer{}, false, nil
	}
	if err != nil {
		return Transfer{}, false, err
	}
	t, err := decodeTransfer(document)
	return t, true, err
}

// List yields the transfers that a query selects, newest first.
func (s *Store) List(ctx context.Context, q Query) iter.Seq2[Transfer, error] {
	filter := bson.D{}
	if len(q.States) > 0 {
		filter = append(filter, stateIn(q.States...))
	}
	leg := bson.D{}
	if q.Account != "" {
		leg = append(leg, bson.E{Key: "account", Value: s.ids.Canonical(q.Account)})
	}
	if q.Account != "" || q.ByLedger {
		leg = append(leg, bson.E{Key: "ledger", Value: q.Ledger})
		filter = append(filter, bson.E{Key: "legs", Value: bson.D{{Key: "$elemMatch", Value: leg}}})
	}
	created := bson.D{}
	if !q.After.IsZero() {
		created = append(created, bson.E{Key: "$gt", Value: q.After})
	}
	if !q.Before.IsZero() {
		created = append(created, bson.E{Key: "$lt", Value: q.Before})
	}
	if len(created) > 0 {
		filter = append(filter, bson.E{Key: "createdAt", Value: created})
	}
	for key, value := range q.Metadata {
		filter = append(filter, bson.E{Key: "metadata." + key, Value: bson.D{{Key: "$eq", Value: value}}})
	}
	newestFirst := bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}
	return s.find(ctx, filter, newestFirst, q.Limit)
}

// Stalled yields the transfers that a takeover with this threshold would get, the oldest first.
func (s *Store) Stalled(ctx context.Context, threshold time.Duration) iter.Seq2[Transfer, error] {
	filter := append(bson.D{{Key: "open", Value: true}}, stalled(threshold)...)
	return s.find(ctx, filter, oldestFirst(), 0)
}

// Initiated yields transfers that wait for a worker and whose time has come, the oldest first.
func (s *Store) Initiated(ctx context.Context) iter.Seq2[Transfer, error] {
	filter := bson.D{
		{Key: "open", Value: true},
		{Key: "state", Value: protocol.Initiated},
		{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{"$notBefore", "$$NOW"}}}}, // a missing one is before all times
	}
	return s.find(ctx, filter, oldestFirst(), 0)
}

func oldestFirst() bson.D { return bson.D{{Key: "lastModified", Value: 1}} }

// find yields transfers page by page. It stops at the first document that can't be read.
func (s *Store) find(ctx context.Context, filter, sort bson.D, limit int) iter.Seq2[Transfer, error] {
	return func(yield func(Transfer, error) bool) {
		find := options.Find().SetSort(sort).SetLimit(int64(limit)).SetAllowDiskUse(true)
		ctx := detached(ctx)
		cursor, err := s.majority.Find(ctx, filter, find)
		if err != nil {
			yield(Transfer{}, err)
			return
		}
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
		for cursor.Next(ctx) {
			t, err := decodeTransfer(cursor.Current)
			if !yield(t, err) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(Transfer{}, err)
		}
	}
}

// WatchTransfer returns a function that waits until the transfer's document changes, and one that ends the watch.
func (s *Store) WatchTransfer(ctx context.Context, id string) (wait func(context.Context) error, end func(), err error) {
	ctx = detached(ctx)
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "documentKey._id", Value: id}}}}
	stream, err := s.majority.Watch(ctx, bson.A{match}, options.ChangeStream().SetMaxAwaitTime(time.Second))
	if err != nil {
		return nil, nil, err
	}
	wait = func(ctx context.Context) error {
		if stream.Next(ctx) {
			return nil
		}
		return stream.Err()
	}
	return wait, func() { _ = stream.Close(context.WithoutCancel(ctx)) }, nil
}
