package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// forgetAfter is for how long the stream recognizes a message that comes twice.
const forgetAfter = 10 * time.Minute

// natsBroker publishes to a stream of NATS, which stores what it acknowledges.
type natsBroker struct {
	conn   *nats.Conn
	stream jetstream.JetStream
}

// openNATS connects to NATS, and makes sure that there is a stream for the subjects
// transfers.*.
func openNATS(ctx context.Context, url string) (*natsBroker, error) {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(conn)
	if err == nil {
		_, err = stream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: "transfers", Subjects: []string{"transfers.*"}, Duplicates: forgetAfter,
		})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsBroker{conn, stream}, nil
}

func (b *natsBroker) publish(ctx context.Context, subject, id string, body []byte) error {
	_, err := b.stream.Publish(ctx, subject, body, jetstream.WithMsgID(id))
	return err
}

func (b *natsBroker) close() error { return b.conn.Drain() }
