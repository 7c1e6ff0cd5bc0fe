package queries

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// UnfinishedIDs returns the IDs of transfers that somebody has claimed and nobody has finished,
// at most so many, in the order of the IDs and beyond the given one. It leaves out holds that
// may still be decided, and, if idle is positive, what was modified since then by the server's
// clock.
func (s *Queries) UnfinishedIDs(ctx context.Context, beyond string, idle time.Duration, most int) ([]string, error) {
	open := bson.E{Key: "open", Value: true}
	plain := append(bson.D{
		open, document.NoHold(), {Key: "epoch", Value: bson.D{{Key: "$ne", Value: 0}}},
	}, document.Stalled(0)...)
	hold := bson.D{open, {Key: "hold", Value: true}, document.StateIn(protocol.Committed, protocol.Rollback)}
	filter := bson.D{
		{Key: "$or", Value: bson.A{plain, hold}}, {Key: "_id", Value: bson.D{{Key: "$gt", Value: beyond}}},
	}
	if idle > 0 {
		since := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", idle.Milliseconds()}}}
		filter = append(filter, bson.E{Key: "$expr", Value: bson.D{
			{Key: "$lte", Value: bson.A{"$lastModified", since}},
		}})
	}
	return s.idsOf(ctx, filter, searching("_id").SetLimit(int64(most)))
}

// StillUnfinished returns those of the given transfers that are not final, and not known to
// be stuck.
func (s *Queries) StillUnfinished(ctx context.Context, ids []string) ([]string, error) {
	filter := bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: "open", Value: true}, {Key: "stuck", Value: nil},
	}
	return s.idsOf(ctx, filter, options.Find())
}

// idsOf returns the IDs of the transfers that a filter selects.
func (s *Queries) idsOf(
	ctx context.Context, filter bson.D, find *options.FindOptionsBuilder,
) ([]string, error) {
	ctx = wire.Detached(ctx)
	find.SetProjection(bson.D{{Key: "_id", Value: 1}}).SetAllowDiskUse(true)
	cursor, err := s.Majority.Find(ctx, filter, find)
	if err != nil {
		return nil, wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.Transfers))
	}
	var documents []struct {
		ID any `bson:"_id"`
	}
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.Transfers))
	}
	ids := make([]string, 0, len(documents))
	for _, d := range documents {
		if id, ok := d.ID.(string); ok { // anything else is no transfer
			ids = append(ids, id)
		}
	}
	return ids, nil
}
