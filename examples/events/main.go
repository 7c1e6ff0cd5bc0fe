// Command events forwards what becomes of transfers to NATS: one that has succeeded, has
// failed, or is held. It moves no money itself: run it beside the services that do, any
// number of times. They name the same kinds of events, all three, and no handler.
// The transfers are those of the database bank.
//
//	export MONGODB_URI=mongodb://localhost:27017/bank?replicaSet=rs0
//	NATS_URL=nats://localhost:4222 events
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// closeLimit is how long the program takes to end.
const closeLimit = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("MONGODB_URI"), os.Getenv("NATS_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
}

// run forwards events until ctx ends.
func run(ctx context.Context, mongoURI, natsURL string) (err error) {
	if mongoURI == "" || natsURL == "" {
		return errors.New("MONGODB_URI and NATS_URL are not set")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURI))
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, client.Disconnect(ending))
	}()
	b, err := openNATS(ctx, natsURL)
	if err != nil {
		return err
	}
	defer closing(b, &err)
	return forward(ctx, client.Database("bank"), b)
}

// forward delivers the events of a database to a broker until ctx ends.
func forward(ctx context.Context, db *mongo.Database, b broker) (err error) {
	coord, err := transfer.NewCoordinator(db, transfer.WithEvents(transfer.EventHandler{Handle: forwardTo(b)}))
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, coord.Close(ending))
	}()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	return coord.Run(ctx)
}
