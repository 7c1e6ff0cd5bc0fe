package deployment

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/wire"
)

// rightsLimit bounds how long the rights are tried. A cluster that is away says nothing
// about them, and holds up nobody.
const rightsLimit = 2 * time.Second

// CheckRights tries whether the user has the rights to recover transfers: to read and to
// change the transfers and all participants. It returns a refusal, if there is one. It
// tries each right by a command that selects no document. The server refuses such a
// command as well: it asks for rights before anything else.
func (d *Deployment) CheckRights(ctx context.Context) error {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), rightsLimit)
	defer cancel()
	handles := []*mongo.Collection{d.catalog.Transfers}
	for _, a := range d.catalog.Addresses() {
		handles = append(handles, d.catalog.At(a).Commands)
	}
	refusals := make([]error, len(handles))
	var all sync.WaitGroup
	for i, handle := range handles {
		all.Go(func() { refusals[i] = tryRights(ctx, handle) })
	}
	all.Wait()
	for _, refusal := range refusals {
		if refusal != nil {
			return refusal
		}
	}
	return nil
}

// tryRights tries the rights to read and to change the documents of a collection.
func tryRights(ctx context.Context, handle *mongo.Collection) error {
	none := bson.D{{Key: "_id", Value: ""}, {Key: "$expr", Value: false}}
	if _, err := wire.FindOne(ctx, handle, none); wire.Denied(err) != nil {
		return err
	}
	_, err := wire.UpdateOne(ctx, handle, none, bson.D{{Key: "$set", Value: bson.D{{Key: "open", Value: true}}}})
	if wire.Denied(err) != nil {
		return err
	}
	return nil
}
