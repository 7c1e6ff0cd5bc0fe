package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// watchTime is how long the server keeps a watcher waiting for a change before it answers that there was none.
const watchTime = 500 * time.Millisecond

// Watch tells of changes to one transfer's document.
type Watch struct {
	changes chan struct{} // the document may have changed; closed when the stream has come to its end
	stop    context.CancelFunc
}

// Watch begins to watch a transfer's document. End ends it.
func (s *Store) Watch(ctx context.Context, transferID string) (*Watch, error) {
	// A request for changes that is cut off leaves its cursor open on the server. So these go on without the caller.
	watching, stop := context.WithCancel(context.WithoutCancel(detached(ctx)))
	opening, cancel := withLimit(detached(ctx), CommandLimit)
	defer cancel()
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "documentKey._id", Value: transferID}}}}
	stream, err := s.majority.Watch(opening, bson.A{match}, options.ChangeStream().SetMaxAwaitTime(watchTime))
	if err != nil {
		stop()
		return nil, err
	}
	w := &Watch{changes: make(chan struct{}, 1), stop: stop}
	go w.follow(watching, stream)
	return w, nil
}

// follow passes the changes on until the watch is ended, or the stream is: its collection was dropped, renamed or replaced.
func (w *Watch) follow(watching context.Context, stream *mongo.ChangeStream) {
	unstopped := context.WithoutCancel(watching)
	defer close(w.changes)
	defer func() {
		closing, cancel := withLimit(unstopped, CommandLimit)
		defer cancel()
		_ = stream.Close(closing)
	}()
	for watching.Err() == nil {
		asking, cancel := withLimit(unstopped, CommandLimit)
		stream.TryNext(asking)
		cancel()
		if stream.Err() != nil || stream.ID() == 0 {
			return
		}
		select {
		case w.changes <- struct{}{}:
		default:
		}
	}
}

// Wait waits until the document may have changed, half a second at most.
func (w *Watch) Wait(ctx context.Context) error {
	select {
	case _, open := <-w.changes:
		if !open {
			return errors.New("the stream has ended")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// End ends the watch. What it holds on the server is given back within half a second.
func (w *Watch) End() { w.stop() }
