// Command service is a small payments service over HTTP: accounts, transfers under an
// idempotency key, and holds. It shows where the calls of the library belong in a server:
// recovery at the start, a worker beside the handlers, probes, and a shutdown that leaves
// nothing half done. Any number of these processes may run at once. It has no
// authentication, and whoever opens an account says whether it may be overdrawn: it is an
// example.
//
// MONGODB_URI names the MongoDB server and has to be set. ADDR is where the service
// listens, localhost:8080 by default; DATABASE is its database, payments by default;
// STALL_THRESHOLD is after how long without a sign of life another process takes a
// transfer over, 30s by default. With a server just for the occasion:
//
//	go run ./internal/mongotest/withmongo go run ./examples/service
//
// Open an account that stands for the world outside, from which money comes, and two
// others:
//
//	curl -i localhost:8080/accounts -d '{"id": "world", "noFloor": true}'
//	curl -i localhost:8080/accounts -d '{"id": "alice"}'
//	curl -i localhost:8080/accounts -d '{"id": "bob"}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: deposit-1' -d '{"from": "world", "to": "alice", "amount": 10000}'
//	curl -i localhost:8080/accounts/alice
//
// Move money. Say it again: the answer is the same, and the money moves once. The same
// key for something else is refused (409), and so is more money than there is (422):
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-17' -d '{"from": "alice", "to": "bob", "amount": 7000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: order-18' -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers/order-17
//
// A transfer with a notBefore is left to the worker (202), and can be cancelled until it
// is committed:
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: rent' \
//	  -d '{"from": "alice", "to": "bob", "amount": 500, "notBefore": "2100-01-01T00:00:00Z"}'
//	curl -i localhost:8080/transfers/rent/cancel -d '{"reason": "moved out"}'
//	curl -i -X POST localhost:8080/transfers/order-17/cancel
//
// Hold money, then take all or a part of it, or give it back. What nobody decides goes
// back when it expires:
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: room-1' \
//	  -d '{"from": "alice", "to": "bob", "amount": 300, "holdFor": "24h"}'
//	curl -i localhost:8080/transfers/room-1/post -d '{"amount": 240}'
//	curl -i -X POST localhost:8080/transfers/room-1/void
//
// Amounts are whole units (6000) or decimals in quotes ("60.00"); an account keeps the
// kind that it was opened with, by a balance of "0.00" for decimals. /livez and /readyz
// are for the probes of Kubernetes: docs/operations.md tells how.
package main

import (
	"cmp"
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
	defaultAddress  = "localhost:8080"
	defaultDatabase = "payments"
	defaultStall    = 30 * time.Second

	startLimit = 30 * time.Second // for the server to be reached and recovery to end
	shutLimit  = 12 * time.Second // for requests to end: longer than one may take
	closeLimit = 10 * time.Second // for what goes on in the background to end
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
	err := run(ctx, config{
		uri: os.Getenv("MONGODB_URI"), address: os.Getenv("ADDR"),
		database: os.Getenv("DATABASE"), stall: os.Getenv("STALL_THRESHOLD"),
	}, log)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// config is what the environment says.
type config struct{ uri, address, database, stall string }

// run connects, listens, and serves until ctx ends.
func run(ctx context.Context, c config, log *slog.Logger) (err error) {
	if c.uri == "" {
		return errors.New(noURI)
	}
	stall := defaultStall
	if c.stall != "" {
		if stall, err = time.ParseDuration(c.stall); err != nil {
			return fmt.Errorf("STALL_THRESHOLD: %w", err)
		}
	}
	client, err := mongo.Connect(options.Client().ApplyURI(c.uri))
	if err != nil {
		return fmt.Errorf("MONGODB_URI: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, client.Disconnect(ctx))
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(c.address, defaultAddress))
	if err != nil {
		return err
	}
	return serve(ctx, client.Database(cmp.Or(c.database, defaultDatabase)), stall, listener, log)
}

// serve answers requests until ctx ends: probes at once, all others when the coordinator
// is ready. Then it takes no new requests, finishes those that it has, stops the worker,
// and finishes what that has begun, in this order.
func serve(ctx context.Context, db *mongo.Database, stall time.Duration, listener net.Listener, log *slog.Logger) (err error) {
	coord, err := transfer.NewCoordinator(db, transfer.WithLogger(log), transfer.WithStallThreshold(stall))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, coord.Close(ctx))
	}()
	h := newHandler(coord, log)
	server := &http.Server{Handler: h, ReadHeaderTimeout: readLimit, ReadTimeout: readLimit}
	failures := make(chan error, 2)
	go func() { failures <- server.Serve(listener) }() // Ends with Shutdown.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
		defer cancel()
		err = errors.Join(err, server.Shutdown(ctx))
	}()
	if err := prepare(ctx, coord, log); err != nil {
		return err
	}

	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := coord.Run(working); err != nil {
			failures <- fmt.Errorf("worker: %w", err)
		}
	})
	defer worker.Wait()
	defer stopWorking()
	h.phase.Store(serving)
	log.Info("serving", "address", listener.Addr().String())

	select {
	case <-ctx.Done():
		log.Info("shutting down")
	case err = <-failures:
	}
	h.phase.Store(stopping)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
	defer cancel()
	return errors.Join(err, server.Shutdown(closing))
}

// prepare is the start-up hook: it creates the indexes and finishes what has stalled.
// What is too young for that now is found by the worker later.
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
