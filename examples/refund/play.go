package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// playLimit is how long the story may take.
	playLimit = 5 * time.Minute
	// clearLimit is how long the clean-up may take, even after the story was interrupted.
	clearLimit = 15 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := play(ctx, os.Getenv("MONGODB_URI"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "The story failed:", err)
		os.Exit(1)
	}
}

// play runs the story in a database of its own, and drops the database at the end.
// This file is the same in every story, so that each folder can be copied as it is.
func play(ctx context.Context, uri string) (err error) {
	if uri == "" {
		return errors.New("MONGODB_URI is not set: it names a replica set or a mongos, like mongodb://localhost:27017/?replicaSet=rs0")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := client.Database("story_" + strings.ToLower(rand.Text()[:10]))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearLimit)
		defer cancel()
		err = errors.Join(err, db.Drop(ctx), client.Disconnect(ctx))
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("it took longer than %s", playLimit))
	defer cancel()
	if err := story(ctx, db); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}
