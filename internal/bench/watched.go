package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// watch has a change stream open until the deployment is closed.
// So somebody reads the oplog, as the other members of a larger set do.
//
// The server makes what was written visible in the oplog in a thread that looks once a
// millisecond whether somebody waits for that, while nobody reads the oplog
// (WiredTigerOplogManager in its source).
// On a set of one member each journaled write waits for it: a command that writes one
// document is waiting before the thread looks, and one that writes two often is not.
func (d *deployment) watch(ctx context.Context) error {
	// The collection need not exist: the stream reads the oplog all the same.
	stream, err := d.client.Database(d.prefix+"watched").Collection("nothing").Watch(ctx, mongo.Pipeline{})
	if err != nil {
		return fmt.Errorf("open a change stream: %w", err)
	}
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		for stream.Next(reading) {
			continue
		}
		err := stream.Err()
		if reading.Err() != nil {
			err = nil
		}
		ended <- errors.Join(err, stream.Close(context.WithoutCancel(ctx)))
	}()
	d.unwatch = func() error {
		end()
		if err := <-ended; err != nil {
			return fmt.Errorf("the change stream was not open all the time: %w", err)
		}
		return nil
	}
	return nil
}
