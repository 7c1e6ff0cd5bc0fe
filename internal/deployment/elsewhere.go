package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// elsewhereScan is how many documents are looked through for a sign that the library has
// been there.
const elsewhereScan = 1000

// elsewhere refuses a collection without a note in which holds are held by the transfers'
// account, and which no transfer has ever touched: it is one of the same name, on another
// server.
//
//  1. A hold is held, in a ledger on one server.
//  2. A process is told that the ledger is on another one, and posts the hold. It finds no
//     marker, and takes that for the sign that the money was moved already.
func (s *Deployment) elsewhere(ctx context.Context, l *collections.Collection, flights []flight, documents map[collections.Subject]bson.Raw) error {
	held := slices.IndexFunc(flights, func(f flight) bool { return f.held })
	if held < 0 || slices.ContainsFunc(flights, func(f flight) bool {
		return l.Fields.View(documents[l.Subject(f.id)]).Markers(f.transfer).Own
	}) {
		return nil
	}
	touched, err := s.touched(ctx, l)
	if err != nil || touched {
		return err
	}
	f := flights[held]
	still, err := s.some(ctx, bson.D{
		{Key: "_id", Value: f.transfer}, {Key: "state", Value: protocol.Preparing}, {Key: "held", Value: true},
	})
	if err != nil || len(still) == 0 {
		return err
	}
	return fmt.Errorf("%w: transfer %s is held on %s of %s, and nothing there shows that a transfer has ever been there: "+
		"give this coordinator the server on which it was begun", collections.ErrUnsupported, words.Quote(f.transfer), words.Quote(f.account), l.Namespace)
}

// touched reports whether one of a collection's first documents has markers or a fence.
func (s *Deployment) touched(ctx context.Context, l *collections.Collection) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	exists := bson.D{{Key: "$exists", Value: true}}
	signs := bson.A{bson.D{{Key: l.Fields.Pending, Value: exists}}, bson.D{{Key: l.Fields.Fence, Value: exists}}}
	cursor, err := l.Majority.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$limit", Value: int64(elsewhereScan)}},
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: signs}}}},
		{{Key: "$limit", Value: int64(1)}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
	}, options.Aggregate().SetBatchSize(2))
	if err != nil {
		return false, wire.ServerErrorOf(err, "find", l.Namespace)
	}
	var found []bson.Raw
	err = cursor.All(ctx, &found)
	return len(found) > 0, wire.ServerErrorOf(err, "find", l.Namespace)
}
