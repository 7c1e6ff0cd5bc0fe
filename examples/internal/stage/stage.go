// Package stage is where the stories of the examples play: a MongoDB server, and databases of their own on it.
package stage

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

	"github.com/mongotransfer/transfer/internal/mongotest"
)

const (
	storyLimit   = time.Minute      // for a story, once the server is there
	cleanupLimit = 15 * time.Second // for the end, also of a story that was interrupted
)

// Stage is what a story plays on.
type Stage struct {
	client    *mongo.Client
	databases map[string]*mongo.Database
}

// Database returns a database that only this story has, and that is dropped at its end. The same name is the same database.
func (s *Stage) Database(name string) *mongo.Database {
	if s.databases[name] == nil {
		s.databases[name] = s.client.Database("story_" + name + "_" + strings.ToLower(rand.Text()[:10]))
	}
	return s.databases[name]
}

// Play plays a story, and ends the process with 1 if it fails. The server is the one that the environment variable MONGODB_URI names, or
// one that is started for the story and stopped at its end.
func Play(story func(context.Context, *Stage) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := play(ctx, story)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "The story failed:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, story func(context.Context, *Stage) error) (err error) {
	server, err := mongotest.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, fmt.Errorf("it took longer than %s", storyLimit))
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		return err
	}
	s := &Stage{client, map[string]*mongo.Database{}}
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx))) }()
	if err := story(ctx, s); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// clear removes what the story has stored.
func (s *Stage) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	var failures []error
	for _, db := range s.databases {
		failures = append(failures, db.Drop(ctx))
	}
	return errors.Join(append(failures, s.client.Disconnect(ctx))...)
}
