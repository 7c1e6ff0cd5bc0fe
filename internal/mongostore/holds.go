package mongostore

import (
	"context"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// undecided matches holds that are neither posted nor voided.
func undecided() bson.D {
	return bson.D{{Key: "state", Value: protocol.Preparing}, {Key: "hold", Value: true}}
}

// unheld matches holds of which not everything is prepared yet.
func unheld() bson.D { return append(undecided(), bson.E{Key: "held", Value: nil}) }

// postable matches holds that are held and have not expired, by the server's clock.
func postable() bson.D {
	before := bson.D{{Key: "$lt", Value: bson.A{"$$NOW", "$expiresAt"}}}
	return append(undecided(), bson.E{Key: "held", Value: true}, bson.E{Key: "$expr", Value: before})
}

// expired matches holds that have expired, by the server's clock. They may not be posted any more, nor is there a need to wait for anybody.
func expired() bson.D {
	over := bson.D{{Key: "$gte", Value: bson.A{"$$NOW", "$expiresAt"}}}
	return append(undecided(), bson.E{Key: "$expr", Value: over})
}

// post returns the change by which a hold is posted: the takeover and the decision in one.
func (w *Attempt) post(mine bson.D) bson.D {
	mine = append(mine, bson.E{Key: "state", Value: protocol.Committed})
	if w.Post != nil {
		mine = append(mine, bson.E{Key: "posted", Value: *w.Post})
	}
	now := bson.D{{Key: "lastModified", Value: true}, {Key: "committedAt", Value: true}}
	return bson.D{
		{Key: "$set", Value: mine},
		{Key: "$inc", Value: bson.D{{Key: "epoch", Value: int64(1)}}},
		{Key: "$currentDate", Value: now},
	}
}

// Expired yields the holds that have expired and are not decided, the oldest first, but for those on
// the given routes.
func (s *Queries) Expired(ctx context.Context, without ...Route) iter.Seq2[Transfer, error] {
	filter := append(bson.D{{Key: "open", Value: true}}, expired()...)
	return s.list(ctx, append(filter, s.off(without)...), searching("expiresAt"), CommandLimit)
}
