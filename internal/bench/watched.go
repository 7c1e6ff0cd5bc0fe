package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// watch keeps a change stream open until the deployment is closed.
// So somebody reads the oplog, as the other members of a larger set do.
//
// On a set of one member, each journaled write waits until it is visible in the oplog.
// A thread of the server makes it visible (WiredTigerOplogManager in its source).
// While nobody reads the oplog, the thread checks once a millisecond whether a write
// waits: one of two documents often comes too late for the first check.
func (d *deployment) watch(ctx context.Context) error {
	stream, err := d.openWatch(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	reading, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(readUntilDone(reading, stream), stream.Close(ctx)) }()
	d.unwatch = func() error {
		end()
		return <-ended
	}
	return nil
}

// openWatch opens a change stream on a collection that need not exist: the server reads
// the whole oplog for it all the same.
func (d *deployment) openWatch(ctx context.Context) (*mongo.ChangeStream, error) {
	stream, err := d.client.Database(d.prefix+"watched").Collection("nothing").Watch(ctx, mongo.Pipeline{})
	if err != nil {
		return nil, fmt.Errorf("open a change stream: %w", err)
	}
	return stream, nil
}

// readUntilDone reads a change stream until the context ends.
// It is an error if the stream ends before: the figures would not be what they are said
// to be.
func readUntilDone(ctx context.Context, stream *mongo.ChangeStream) error {
	for stream.Next(ctx) {
		continue
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the change stream was not open all the time: %w", errors.Join(errors.New("it has ended"), stream.Err()))
}
