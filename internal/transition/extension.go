package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
)

// Extension lets a hold that is held expire later.
type Extension struct {
	// Transfer is the hold as it was read.
	Transfer document.Transfer
	// Owner is a nonce that nothing else has.
	Owner string
	// ExpiresIn is how long the hold lasts from now on.
	ExpiresIn time.Duration
}

// Statement returns the update. The server computes the new time.
//
// It requires the digest, as a [Claim] does. And it takes the hold over, for nothing more
// than this: an execution that has found the hold expired, and has not decided yet, is
// overtaken.
//
//  1. A takes an expired hold over, to void it.
//  2. The primary falls, and the clock of the next one is behind: the hold has not
//     expired there.
//  3. B extends the hold, and is told so.
//  4. A's decision voids it.
func (e Extension) Statement() (filter bson.D, update bson.A) {
	filter = bson.D{
		{Key: "_id", Value: e.Transfer.ID},
		{Key: "digest", Value: bson.D{{Key: "$eq", Value: e.Transfer.Digest}}},
	}
	set := bson.D{
		{Key: "expiresAt", Value: document.ExpiryIn(e.ExpiresIn)},
		{Key: "lastModified", Value: "$$NOW"},
		{Key: "owner", Value: bson.D{{Key: "$literal", Value: e.Owner}}},
		{Key: "epoch", Value: bson.D{{Key: "$add", Value: bson.A{"$epoch", int64(1)}}}},
	}
	return append(filter, document.Extendable(e.ExpiresIn)...), bson.A{bson.D{{Key: "$set", Value: set}}}
}
