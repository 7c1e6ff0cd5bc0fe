package queries

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// watchTime is how long the server keeps a request for changes before it answers that
// there was none.
const watchTime = 500 * time.Millisecond

// ErrStreamEnded is returned for a stream whose collection was dropped, renamed or
// replaced.
var ErrStreamEnded = errors.New("the stream has ended")

// Stream reports which transfers have changed in a way that somebody waits for. It
// belongs to one goroutine.
type Stream struct {
	changes   *mongo.ChangeStream
	namespace string
}

// Watch opens a stream of the transfers that become held or final from now on: then their
// callers may have an answer. Close ends it.
func (q *Queries) Watch(ctx context.Context) (*Stream, error) {
	const updated = "updateDescription.updatedFields."
	final := bson.D{{Key: "$in", Value: bson.A{protocol.Success, protocol.Fail}}}
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: updated + "state", Value: final}},
			bson.D{{Key: updated + "held", Value: true}},
		}}}}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "documentKey", Value: 1}}}},
	}
	return q.watch(ctx, pipeline, watchTime)
}

// WatchNothing opens a stream that shows no change. While it is asked for changes,
// somebody reads the oplog.
func (q *Queries) WatchNothing(ctx context.Context, awaited time.Duration) (*Stream, error) {
	return q.watch(ctx, bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "rename"}}}}}, awaited)
}

// OnlyMember reports whether the transfers are on a set with one member that may become
// its primary.
func (q *Queries) OnlyMember(ctx context.Context) (bool, error) {
	answer, err := collections.Hello(ctx, q.catalog.Majority)
	return err == nil && len(answer.Hosts) == 1 && !answer.Routed(), err
}

// watch opens a stream of some changes. A request waits for so long until the answer is
// that there was none.
func (q *Queries) watch(ctx context.Context, pipeline bson.A, awaited time.Duration) (*Stream, error) {
	opening, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	majority := q.catalog.Majority
	changes, err := majority.Watch(opening, pipeline, options.ChangeStream().SetMaxAwaitTime(awaited))
	if err != nil {
		return nil, wire.ServerErrorOf(err, "changeStream", wire.NamespaceOf(majority))
	}
	return &Stream{changes, wire.NamespaceOf(majority)}, nil
}

// Next returns the transfers that have changed. It waits for a while if there is none,
// but for the first time. Where a server has gone the driver resumes the stream, so that
// nothing is missed. Next fails where the driver can't.
//
// A request for changes that is cut off leaves its cursor open on the server. To end a
// stream, let Next return first.
func (s *Stream) Next(ctx context.Context) (ids []string, err error) {
	asking, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	for s.changes.TryNext(asking) {
		if id, ok := s.changes.Current.Lookup("documentKey", "_id").StringValueOK(); ok {
			ids = append(ids, id)
		}
		if s.changes.RemainingBatchLength() == 0 {
			break
		}
	}
	if s.changes.Err() == nil && s.changes.ID() == 0 {
		return ids, ErrStreamEnded
	}
	return ids, wire.ServerErrorOf(s.changes.Err(), "changeStream", s.namespace)
}

// Close releases the stream's cursor on the server.
func (s *Stream) Close(ctx context.Context) {
	closing, cancel := wire.WithTimeout(context.WithoutCancel(wire.Detached(ctx)), wire.CommandLimit)
	defer cancel()
	_ = s.changes.Close(closing)
}
