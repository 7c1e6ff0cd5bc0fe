package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

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
