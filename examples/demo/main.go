// Command demo shows on the terminal what the library promises.
// It makes many transfers at once, debits an account that has too little money, and kills
// two processes in the middle of a transfer.
// At the end it checks every balance, and exits with 1 if anything is wrong.
//
//	make demo
//
// The environment variable MONGODB_URI is the connection string of the MongoDB server.
// The demo uses a database of its own there, and drops it at the end.
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
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mongotransfer/transfer"
)

const (
	// storyLimit is how long the story may take.
	storyLimit = 2 * time.Minute
	// cleanupLimit is how long the clean-up may take, even after the story was
	// interrupted.
	cleanupLimit = 15 * time.Second
	// stallThreshold is how long a transfer may show no progress before recovery takes it
	// over.
	// It is short here, so that the reader need not wait.
	// The default is 30 seconds.
	stallThreshold = 500 * time.Millisecond
)

func main() {
	if os.Getenv(workerVariable) != "" {
		fmt.Fprintln(os.Stderr, workerMain())
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := play(ctx, newScreen(os.Stdout), os.Getenv("MONGODB_URI"))
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
}

// play opens a database and a coordinator, and runs the story with them.
func play(ctx context.Context, out *screen, uri string) (err error) {
	if uri == "" {
		return errors.New("MONGODB_URI is not set: it names a replica set or a mongos, like mongodb://localhost:27017/?replicaSet=rs0")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, fmt.Errorf("it took longer than %s", storyLimit))
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := database(client, "transfer_demo_"+strings.ToLower(rand.Text()[:10]))
	coord, err := newCoordinator(db, "demo")
	if err != nil {
		return errors.Join(err, client.Disconnect(ctx))
	}
	defer func() {
		// The context of the story may have ended, for example after Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		err = errors.Join(err, coord.Close(ctx), db.Drop(ctx), client.Disconnect(ctx))
	}()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	s := &story{out: out, uri: uri, db: db, coord: coord, book: newBook()}
	return s.run(ctx)
}

// database returns a database handle that reads from the primary, and only what a
// majority has stored, whatever the URI says.
func database(client *mongo.Client, name string) *mongo.Database {
	return client.Database(name, options.Database().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
}

// newCoordinator returns a coordinator whose transfers name the given owner.
// It answers once nothing is left to be done, because the story shows what is stored.
func newCoordinator(db *mongo.Database, owner string) (*transfer.Coordinator, error) {
	return transfer.NewCoordinator(db, transfer.WithOwner(owner), transfer.WithStallThreshold(stallThreshold),
		transfer.WithReturnAt(transfer.AtSuccess))
}
