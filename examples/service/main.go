// Command service is a small payments service over HTTP: accounts, and transfers under an idempotency key. It shows where the calls
// of the library belong in a server: recovery at the start, a worker beside the handlers, and a shutdown that leaves nothing
// half done. It has no authentication, and whoever opens an account says how much money is in it: it is an example.
//
// The environment variable MONGODB_URI names the MongoDB server and has to be set; ADDR is where the service listens,
// localhost:8080 by default. With a server just for the occasion:
//
//	go run ./internal/mongotest/withmongo go run ./examples/service
//
// Open two accounts, and look at one:
//
//	curl -i localhost:8080/accounts -d '{"id": "alice", "balance": 10000}'
//	curl -i localhost:8080/accounts -d '{"id": "bob", "balance": 0}'
//	curl -i localhost:8080/accounts/alice
//
// Move money. Say it again: the answer is the same, and the money moves once. The same key for something else is refused (409), and
// so is more money than there is (422):
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 7000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-18' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers/order-17
//
// A transfer with a notBefore is left to the worker (202), and can be cancelled until it is committed:
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: rent' \
//	  -d '{"from": "alice", "to": "bob", "amount": 500, "notBefore": "2100-01-01T00:00:00Z"}'
//	curl -i localhost:8080/transfers/rent/cancel -d '{"reason": "moved out"}'
//	curl -i -X POST localhost:8080/transfers/order-17/cancel
//
// Amounts are whole units (6000) or decimals in quotes ("60.00"); an account keeps the kind that it was opened with.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

const (
	defaultAddress = "localhost:8080"
	databaseName   = "payments"

	startLimit = 30 * time.Second // for the server to be reached and recovery to end
	shutLimit  = 20 * time.Second // for all that is under way to end
	readLimit  = 5 * time.Second  // for a request to come in
)

// noURI is the error for a start without MONGODB_URI.
const noURI = `MONGODB_URI is not set: it names a MongoDB replica set or mongos, like mongodb://localhost:27017/?replicaSet=rs0
For a server that ends with the service: go run ./internal/mongotest/withmongo go run ./examples/service`

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once. The next start recovers what it leaves.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Getenv("MONGODB_URI"), os.Getenv("ADDR"), log)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run connects, listens, and serves until ctx ends.
func run(ctx context.Context, uri, address string, log *slog.Logger) (err error) {
	if uri == "" {
		return errors.New(noURI)
	}
	if address == "" {
		address = defaultAddress
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return fmt.Errorf("MONGODB_URI: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
		defer cancel()
		err = errors.Join(err, client.Disconnect(ctx))
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return serve(ctx, client.Database(databaseName), listener, log)
}

// serve starts the coordinator and answers requests until ctx ends. Then it takes no new requests, and finishes what it has begun.
func serve(ctx context.Context, db *mongo.Database, listener net.Listener, log *slog.Logger) (err error) {
	defer func() { _ = listener.Close() }() // The HTTP server has closed it already, if it came to that.
	coord, err := transfer.NewCoordinator(db, transfer.WithLogger(log))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
		defer cancel()
		err = errors.Join(err, coord.Close(ctx))
	}()
	if err := prepare(ctx, coord, log); err != nil {
		return err
	}

	server := &http.Server{Handler: newHandler(coord, log), ReadHeaderTimeout: readLimit, ReadTimeout: readLimit}
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	failures := make(chan error, 2)
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := coord.Run(working); err != nil {
			failures <- fmt.Errorf("worker: %w", err)
		}
	})
	go func() { failures <- server.Serve(listener) }() // Ends with Shutdown.
	log.Info("serving", "address", listener.Addr().String())

	select {
	case <-ctx.Done():
		log.Info("shutting down")
	case err = <-failures:
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	stopWorking()
	worker.Wait()
	return err
}

// prepare is the start-up hook: it creates the indexes and finishes what an earlier process has left. What is too young to count as
// stalled now is found by the worker later.
func prepare(ctx context.Context, coord *transfer.Coordinator, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := coord.Setup(ctx); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	report, err := coord.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	log.Info("recovered", "found", report.Found, "succeeded", report.Succeeded, "failed", report.Failed,
		"expired", report.Expired, "stuck", report.Stuck)
	return nil
}
