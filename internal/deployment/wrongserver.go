package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// searchedDocuments is how many documents are searched for a sign of the library.
const searchedDocuments = 1000

// refuseOtherServer refuses a collection without a note and without a trace of any
// transfer, if the transfers show held holds there and none of their markers was found.
// It is a collection of the same name, on another server.
// Where the collection of a name is recorded, compareIdentity finds that out before.
// Here it is not recorded yet:
//
//  1. A hold is held, in a ledger on one server.
//  2. A process is configured with the ledger on another one, and posts the hold. It
//     finds no marker, and takes that as the sign that the money was moved already.
func (d *Deployment) refuseOtherServer(ctx context.Context, c *collections.Collection, inFlight []participant) error {
	held := slices.IndexFunc(inFlight, func(p participant) bool { return p.held })
	if held < 0 {
		return nil
	}
	touched, err := everTouched(ctx, c)
	if err != nil || touched {
		return err
	}
	p := inFlight[held]
	still, err := d.sampleTransfers(ctx, bson.D{
		{Key: "_id", Value: p.transfer}, {Key: "state", Value: protocol.Preparing}, {Key: "held", Value: true},
	})
	if err != nil || len(still) == 0 {
		return err
	}
	return fmt.Errorf("%w: transfer %s is held on %s of %s, and nothing there shows that a transfer has ever been there: "+
		"give this coordinator the server on which it was begun",
		collections.ErrUnsupported, words.Quote(p.transfer), words.Quote(p.account), c.Namespace)
}

// everTouched reports whether one of a collection's first documents has markers or a
// fence.
func everTouched(ctx context.Context, c *collections.Collection) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	exists := bson.D{{Key: "$exists", Value: true}}
	signs := bson.A{bson.D{{Key: c.Fields.Pending, Value: exists}}, bson.D{{Key: c.Fields.Fence, Value: exists}}}
	found, err := wire.Aggregate(ctx, c.Majority, bson.A{
		bson.D{{Key: "$limit", Value: int64(searchedDocuments)}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "$or", Value: signs}}}},
		bson.D{{Key: "$limit", Value: int64(1)}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
	}, options.Aggregate().SetBatchSize(2))
	return len(found) > 0, err
}
