// Command service is a small payments service over HTTP.
// It has accounts, transfers with an idempotency key, holds, and refunds.
// It shows where the calls of the library belong in a server: recovery at the start, a
// worker beside the handlers, probes, and a shutdown that leaves nothing half done.
// Any number of these processes may run at once on one database.
// It is an example: it has no authentication, and any client may open an account that can
// be overdrawn.
//
// These environment variables configure it:
//
//   - MONGODB_URI is the connection string of the MongoDB server. It must be set.
//   - ADDR is the address on which the service listens. The default is localhost:8080.
//   - DATABASE is the name of its database. The default is payments.
//   - STALL_THRESHOLD is how long a transfer may show no progress before another process
//     takes it over. The default is 30s.
//   - CLIENT_HEADER is the header field in which a proxy that authenticates the clients
//     names them. Each client then has keys and transfers of its own. Without it there is
//     one client. Set it for good: it becomes a part of what is stored.
//   - WEBHOOK_URL is where events are sent: that a transfer has moved, has failed, or is
//     held. Each comes at least once, whichever process dies. Without it, events go to
//     the log. A database from before the service had events is refused: docs/events.md
//     says how it is switched over.
//   - ADMIN_ADDR is the address for those who operate the service: a window, counts, and
//     where a transfer stands. The default is localhost:8081. Let no client reach it.
//
// This command starts the service with a MongoDB server that ends with it:
//
//	go run ./internal/mongotest/withmongo go run ./examples/service
//
// Open an account for the outside world, from which money comes, and two other accounts:
//
//	curl -i localhost:8080/accounts -d '{"id": "world", "noFloor": true}'
//	curl -i localhost:8080/accounts -d '{"id": "alice"}'
//	curl -i localhost:8080/accounts -d '{"id": "bob"}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "deposit-1"' \
//	  -d '{"from": "world", "to": "alice", "amount": 10000}'
//	curl -i localhost:8080/accounts/alice
//
// Move money, and send the same request again.
// The answer is the same, and the money moves once.
// The same key for another transfer is refused, and so is a transfer of more money than
// there is (422, with different types):
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "order-17"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "order-17"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "order-17"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 7000}'
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "order-18"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 6000}'
//	curl -i localhost:8080/transfers/order-17
//
// The worker runs a transfer that has a notBefore (202).
// Until the transfer is committed, it can be cancelled:
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "rent"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 500,
//	       "notBefore": "2100-01-01T00:00:00Z"}'
//	curl -i localhost:8080/transfers/rent/cancel -d '{"reason": "moved out"}'
//	curl -i -X POST localhost:8080/transfers/order-17/cancel
//
// Hold money, and then post all of it, post a part, or void the hold.
// A hold that is neither posted nor voided is given back when it expires:
//
//	curl -i localhost:8080/transfers -H 'Idempotency-Key: "room-1"' \
//	  -d '{"from": "alice", "to": "bob", "amount": 300, "holdFor": "24h"}'
//	curl -i localhost:8080/transfers/room-1/post -d '{"amount": 240}'
//	curl -i -X POST localhost:8080/transfers/room-1/void
//
// Refund a part of a transfer, and then all that is left.
// More than that is refused (409):
//
//	curl -i localhost:8080/transfers/order-17/refunds -H 'Idempotency-Key: "refund-1"' \
//	  -d '{"amount": 1500}'
//	curl -i localhost:8080/transfers/order-17/refunds -H 'Idempotency-Key: "refund-2"' \
//	  -d '{"all": true}'
//	curl -i localhost:8080/transfers/order-17/refunds -H 'Idempotency-Key: "refund-3"' \
//	  -d '{"amount": 1}'
//
// Each answer that is no success is a problem (RFC 9457).
// Its type leads to a page, and next says what the client does: repeat the request, use a
// new key, change the request, or look at what is there.
// What may be different in a moment is 503 with a Retry-After, and nothing else is, so
// curl repeats by itself what can be repeated, and the money moves once:
//
//	curl --retry 9 --retry-all-errors localhost:8080/transfers \
//	  -H 'Idempotency-Key: "order-19"' -d '{"from": "alice", "to": "bob", "amount": 1}'
//	curl -i localhost:8080/problems/insufficientFunds
//
// An amount is a whole number of units (6000) or a decimal in quotes ("60.00").
// An account keeps the kind of amount with which it was opened; a balance of "0.00" opens
// it for decimals.
// /livez and /readyz are for the probes of Kubernetes, which docs/operations.md
// describes.
// Those who operate the service open http://localhost:8081 in a browser: it shows
// what is stuck, rates and latencies, each transfer and each account.
// They also ask for counts, for what keeps a transfer, and for an audit, as a job does
// each night:
//
//	curl localhost:8081/debug/vars
//	curl localhost:8081/explain/order-17
//	curl --fail-with-body -X POST localhost:8081/audit
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
	"github.com/mongotransfer/transfer/transferhttp"
)

const (
	defaultAddress  = "localhost:8080"
	defaultAdmin    = "localhost:8081"
	defaultDatabase = "payments"
	defaultStall    = 30 * time.Second

	// startLimit is how long it may take to reach the server and to recover.
	startLimit = 30 * time.Second
	// shutLimit is how long the requests in progress may take to end. It is longer than
	// requestLimit.
	shutLimit = 12 * time.Second
	// closeLimit is how long the transfers in the background may take to end.
	closeLimit = 10 * time.Second
	// readLimit is how long a request may take to arrive.
	readLimit = 5 * time.Second
)

// noURI is the error of a start without MONGODB_URI.
const noURI = `MONGODB_URI is not set: it names a MongoDB replica set or mongos, like mongodb://localhost:27017/?replicaSet=rs0
For a server that ends with the service: go run ./internal/mongotest/withmongo go run ./examples/service`

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	// The next start recovers what it leaves behind.
	context.AfterFunc(ctx, stop)
	err := run(ctx, config{
		uri: os.Getenv("MONGODB_URI"), address: os.Getenv("ADDR"),
		database: os.Getenv("DATABASE"), stall: os.Getenv("STALL_THRESHOLD"),
		clientHeader: os.Getenv("CLIENT_HEADER"), webhook: os.Getenv("WEBHOOK_URL"), admin: os.Getenv("ADMIN_ADDR"),
	}, log)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// config holds the values of the environment variables.
type config struct{ uri, address, database, stall, clientHeader, webhook, admin string }

// run connects to MongoDB, listens, and serves until ctx ends.
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
	hook, err := newWebhook(c.webhook)
	if err != nil {
		return err
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
	admin, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(c.admin, defaultAdmin))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	p := process{
		db: client.Database(cmp.Or(c.database, defaultDatabase)), stall: stall, clientHeader: c.clientHeader, webhook: hook, log: log,
	}
	return p.serve(ctx, listener, admin)
}

// process is one process of the service.
type process struct {
	db           *mongo.Database
	stall        time.Duration
	clientHeader string
	webhook      *webhook
	log          *slog.Logger
}

// serve answers requests until ctx ends.
// It answers probes at once, and all other requests when the coordinator is ready.
// At the end it accepts no new requests, finishes those in progress, stops the worker,
// and finishes the worker's transfers, in this order.
func (p process) serve(ctx context.Context, listener, admin net.Listener) (err error) {
	counts, recorder := new(metrics), transferhttp.NewRecorder()
	h := newHandler(nil, p.clientHeader, p.log)
	h.webhook = p.webhook
	coord, err := transfer.NewCoordinator(p.db,
		transfer.WithLogger(p.log), transfer.WithStallThreshold(p.stall), transfer.WithObserver(recorder.Observer(counts.observer())),
		transfer.WithEvents(transfer.EventHandler{Handle: h.deliver}))
	if err != nil {
		return errors.Join(err, listener.Close(), admin.Close())
	}
	h.coord = coord
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, coord.Close(ctx))
	}()
	failures := make(chan error, 3)
	watched := start(newAdmin(coord, counts, recorder), admin, failures)
	defer func() { err = errors.Join(err, watched.Close()) }()
	server := start(h, listener, failures)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
		defer cancel()
		err = errors.Join(err, server.Shutdown(ctx))
	}()
	if err := prepare(ctx, coord, p.log); err != nil {
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
	p.log.Info("serving", "address", listener.Addr().String(), "admin", admin.Addr().String())

	select {
	case <-ctx.Done():
		p.log.Info("shutting down")
	case err = <-failures:
	}
	h.phase.Store(stopping)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutLimit)
	defer cancel()
	return errors.Join(err, server.Shutdown(closing))
}

// start starts a server, which Shutdown or Close ends.
func start(h http.Handler, listener net.Listener, failures chan<- error) *http.Server {
	server := &http.Server{Handler: h, ReadHeaderTimeout: readLimit, ReadTimeout: readLimit}
	go func() { failures <- server.Serve(listener) }()
	return server
}

// prepare creates the indexes and finishes the transfers that have stalled.
// The worker later finds those that have not stalled long enough yet.
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
