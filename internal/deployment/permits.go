package deployment

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/wire"
)

// permitLimit is how long the rights are tried. A cluster that is away says nothing of
// them, and keeps nobody waiting.
const permitLimit = 2 * time.Second

// CheckRights tries whether the user has the rights to recover transfers: to read and to
// change these and all participants. It returns the first refusal, if there is one. Each
// is tried by a command about no document, which is refused all the same: the server asks
// for rights before anything else.
func (s *Deployment) CheckRights(ctx context.Context) error {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), permitLimit)
	defer cancel()
	collections := []*mongo.Collection{s.Transfers}
	for _, p := range s.Addresses() {
		collections = append(collections, s.At(p).Commands)
	}
	refusals := make([]error, len(collections))
	var all sync.WaitGroup
	for i, c := range collections {
		all.Go(func() { refusals[i] = permits(ctx, c) })
	}
	all.Wait()
	for _, refusal := range refusals {
		if refusal != nil {
			return refusal
		}
	}
	return nil
}

// permits tries the rights to read and to change the documents of a collection.
func permits(ctx context.Context, c *mongo.Collection) error {
	none := bson.D{{Key: "_id", Value: ""}, {Key: "$expr", Value: false}}
	if _, err := wire.FindOne(ctx, c, none); wire.Refused(err) != nil {
		return err
	}
	_, err := wire.UpdateOne(ctx, c, none, bson.D{{Key: "$set", Value: bson.D{{Key: "open", Value: true}}}})
	if wire.Refused(err) != nil {
		return err
	}
	return nil
}
