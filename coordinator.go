package transfer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/insight"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/oplogreader"
	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/patience"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/recovery"
	"github.com/mongotransfer/transfer/internal/repair"
	"github.com/mongotransfer/transfer/internal/retention"
)

// Coordinator runs transfers.
// It is safe for many goroutines, and one per process and database is enough.
// Any number of them, in any number of processes, may work on the same documents.
type Coordinator struct {
	settings   settings
	catalog    *collections.Catalog
	deployment *deployment.Deployment
	retention  *retention.Retention
	queries    *queries.Queries
	accounts   *accounts.Accounts
	histories  *history.Reader
	repairs    *repair.Repairs
	insight    *insight.Insight
	store      *mongostore.Store
	engine     *engine.Engine
	lookout    *lookout.Lookout
	patience   *patience.Patience
	notes      *liveness.Notes
	pulse      *liveness.Pulse
	reader     *oplogreader.Reader
	health     *recovery.Health
	outbox     *outbox.Outbox
	queues     queues
	originals  queues // the callers who reverse each transfer
	changed    queues // the callers who change each account
	calls      calls
	readers    map[collections.Cluster]*engine.Callers // of one transfer or account
	submitters engine.Callers                          // to store what a worker runs
	deciders   engine.Callers                          // to post, void, cancel or extend
	log        *slog.Logger
	now        func() time.Time
	wake       chan struct{} // receives a value when something was submitted in this process
	// historyFrom returns the time since which every committed transfer is still stored.
	historyFrom func(context.Context) (time.Time, error)
	// hurryUp has what is deferred of a transfer sent at once, until done is called.
	hurryUp func(id string) (done func())
}

// NewCoordinator returns a Coordinator over the collections accounts and transfers of db,
// unless options say otherwise.
// It doesn't talk to the server: [Coordinator.Setup] does, once per database.
// The error wraps ErrInvalidRequest.
//
// What is sent goes to the client of each collection, and some of its options don't
// count:
//
//   - Read preference, read concern and write concern are the library's own: it reads
//     from primaries only, and waits for a majority with each write.
//   - It needs no retryWrites: it sends plain commands, finds out what became of them,
//     and repeats what is safe.
//   - A command of a transfer takes 5 s at most, and a call that has stored nothing tries
//     for 30 s to reach a server, whatever timeoutMS says.
//     A shorter serverSelectionTimeoutMS only ends each try earlier.
//     For long reads, such as lists and audits, timeoutMS counts if ctx has no deadline.
//   - The client's codecs and BSON options are for documents of your own: the library
//     encodes and decodes as the driver does by default.
//
// All others count, such as TLS, the pool and monitors.
func NewCoordinator(db *mongo.Database, opts ...Option) (*Coordinator, error) {
	if db == nil {
		return nil, invalid("a coordinator wants a database")
	}
	s, err := settingsOf(db, opts)
	if err != nil {
		return nil, err
	}
	ledgers := map[string]*mongo.Collection{"": s.accounts}
	for name, collection := range s.ledgers {
		ledgers[name] = collection
	}
	now := time.Now // the one place where the process's clock comes in
	catalog, err := collections.New(collections.Config{
		Transfers: s.transfers,
		Ledgers:   ledgers,
		Documents: s.documents,
		Fields:    document.Fields(s.fields),
		IDs:       document.IDCodec(s.ids),
		Events:    s.kinds(),
		Now:       now,
	})
	if err != nil {
		return nil, invalid("%w", err)
	}
	queries, kept := queries.New(catalog), retention.New(catalog, s.retention)
	hand := outbox.NewHand(catalog.Events, now)
	store, err := mongostore.New(catalog, kept, mongostore.Limits{Markers: s.markerLimit, FenceBytes: s.fenceBytes, Outbox: hand})
	if err != nil {
		return nil, invalid("%w", err)
	}
	running := engine.New(store, s.logger, now, engine.Limits(s.group))
	running.Observe(s.observer.ofEngine())
	deployed := deployment.New(catalog, kept, s.logger)
	notes := liveness.NewNotes(catalog)
	pulse := liveness.NewPulse(notes, liveness.NewProcess(s.owner), running.Busy, now, s.logger)
	running.OnBegin(pulse.Begin)
	c := &Coordinator{
		settings:   s,
		catalog:    catalog,
		deployment: deployed,
		insight:    insight.New(catalog, deployed.ConnectToRead),
		retention:  kept,
		queries:    queries,
		accounts:   accounts.New(catalog),
		histories:  history.New(catalog),
		repairs:    repair.New(catalog),
		store:      store,
		engine:     running,
		lookout:    lookout.New(queries, s.logger, now),
		patience:   patience.New(catalog),
		notes:      notes,
		pulse:      pulse,
		reader:     oplogreader.New(oplogreader.Over(queries), s.logger, now),
		health:     recovery.NewHealth(now),
		log:        s.logger,
		wake:       make(chan struct{}, 1),
		now:        now, historyFrom: kept.HistoryFrom, hurryUp: running.HurryUp, readers: readersOf(catalog),
	}
	running.OnAnswer(c.reader.Answered)
	c.outbox = c.newOutbox(hand)
	return c, nil
}

// Setup creates the collections, the indexes, and the deployment's note, where they are
// missing, and checks that the servers and collections are fit.
// It may be repeated, and called by many at once.
// Where nothing is missing it writes nothing, and needs no right to create.
//
// The note lies beside each collection of accounts, documents and transfers, under its
// name with .transfer added.
// It names the transfers collection that it belongs to, the fields, how IDs are stored,
// the kinds of events, and the format.
// Beside it is the collection's identity, and beside the note of the transfers is
// recorded which collection each name stands for.
// A Coordinator with other options is refused before anything moves, by Setup,
// [Coordinator.Check] and the first use of each collection: see [Coordinator.Adopt].
//
// What makes a deployment unfit:
//
//   - a server that is no MongoDB 5.0 or later, or no replica set;
//   - another configuration than the deployment's;
//   - a collection of the same name as the deployment's, on another server;
//   - a view, a capped or a collated collection, or one that is sharded by something else
//     than _id;
//   - an index of the user's that lets the server remove transfers or accounts, that is
//     unique over what transfers change, or that has the name of one of the library's;
//   - a validator that refuses the library's fields.
//
// What it returns:
//
//   - nil: everything is there.
//   - ErrUnsupportedDeployment: the deployment is unfit, and the text says what to do
//     about it.
//   - ErrUnauthorized: the [UnauthorizedError] names the right to be granted.
//   - ErrClosed, the context's own error, a server that can't be reached for 30 s: call
//     again, some of it may be there.
func (c *Coordinator) Setup(ctx context.Context) error {
	return c.change(ctx, c.deployment.Setup)
}

// Check checks what [Coordinator.Setup] checks, and that all that Setup creates is there.
// It writes nothing, and needs only rights to read.
// It is for processes that start beside others: Setup is for the job that runs before
// them.
//
//   - nil: everything is there.
//   - ErrUnsupportedDeployment: the deployment is unfit, or Setup is missing; the text
//     says what to do.
//   - all others: as Setup.
func (c *Coordinator) Check(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.Check)
}

// Adopt makes this Coordinator's configuration that of the deployment: its transfers
// collection, its field names, how it stores IDs, the kinds of its events, and which
// collections its names stand for.
// It is for a change on purpose, which nothing else makes.
// Adopt rewrites only the notes and what is recorded beside them: rename yourself,
// before, what accounts store under other names.
//
// Stop every other process that uses these collections first, because a process that has
// checked the notes before goes on as it was.
// Then let [Coordinator.Recover] of the old configuration finish what they have begun.
// Adopt refuses with ErrUnsupportedDeployment while a transfer of this transfers
// collection is unfinished, or an account or a document carries a marker, under the old
// name or the new one.
// It reads all accounts to make sure.
// It does not change a deployment of another stored format.
//
// Where only the kinds of events change (see [WithEvents]), transfers may be unfinished,
// holds for example: what they come to from then on is delivered by the new kinds.
// Call Setup afterwards, which makes the index.
// Adopt refuses to switch events off while some wait to be delivered.
// What was given up is not delivered any more then.
//
//   - nil: this configuration is the deployment's.
//   - ErrUnsupportedDeployment: nothing has changed; the text says what is in the way.
//   - all others: as [Coordinator.Setup]. Call again: until it has returned nil, let no
//     process begin.
func (c *Coordinator) Adopt(ctx context.Context) error {
	return c.change(ctx, c.deployment.Adopt)
}

// change changes the deployment.
func (c *Coordinator) change(ctx context.Context, how func(context.Context) error) error {
	end, err := c.begin()
	if err != nil {
		return err
	}
	defer end()
	return c.untilFit(ctx, how)
}

// Close stops taking work and waits for what was begun, also for what is left to be done
// after an answer (see [WithReturnAt]), which it sends at once.
// Calls that write without moving money, such as Submit and UpdateAccount, end with the
// try that is under way.
// A Run of this Coordinator ends.
// Where a server doesn't answer, Run and calls that read end up to 5 s later than Close:
// wait for them before you disconnect the client, which Close leaves connected.
//
//   - nil: what was begun is done.
//     A call after one whose ctx had ended first also returns nil, and says nothing about
//     what that one has stopped.
//   - the error of ctx: it has ended first, and the rest was stopped where it is.
//     Recovery finishes it, in this process or another one.
//     A function of the service that the library calls, such as an Observer, delays that
//     by a second at most.
//   - mongo.ErrClientDisconnected: the client was disconnected before, and transfers that
//     were under way were left unfinished.
//     Recovery finishes them, or has by now.
//   - an error that says that another Close ran out of time: that one has stopped the
//     rest.
//   - ErrInvalidRequest: ctx is nil, and nothing was closed.
func (c *Coordinator) Close(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	err := c.engine.Close(ctx)
	err = cmp.Or(err, c.calls.wait(ctx))
	c.lookout.Close(ctx)
	c.pulse.Close(ctx, c.engine.HasLeft())
	c.reader.Close(ctx)
	return err
}

// calls are those that write without the engine.
// Close waits for them, and none of them goes on trying after it.
type calls struct {
	mu       sync.Mutex
	underWay sync.WaitGroup // begins under mu, and never once the engine is closed
}

// begin counts a call that writes without the engine, until end is called.
// Its error is ErrClosed.
func (c *Coordinator) begin() (end func(), err error) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if err := c.closedError(); err != nil {
		return nil, err
	}
	c.calls.underWay.Add(1)
	return c.calls.underWay.Done, nil
}

// wait waits for the calls under way, once the engine is closed.
// A call ends with its latest try, which takes no longer than one command.
func (cs *calls) wait(ctx context.Context) error {
	over := make(chan struct{})
	cs.mu.Lock() // who has begun is counted, and nobody begins any more
	go func() {
		cs.underWay.Wait()
		close(over)
	}()
	cs.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Healthy reports whether this Coordinator can work: the servers of all its collections
// answer and are primaries, and a [Coordinator.Run] that was started still works.
// It is not enough that Run has not returned: it has lately found out what there is to
// do, and done it; and where it delivers events, it has lately found out which are due.
// A handler that fails does not make it unhealthy.
// Where no Run was started, or its context has ended, the servers alone count.
// It asks each server once, and reads the notes of the collections in use: they must be
// those that this process began with.
// It waits for no answer longer than 5 s, or until ctx ends.
//
// It is for a readiness probe.
// Don't let a liveness probe ask it: a process that is ended because a server is away
// only leaves transfers behind for others.
//
//   - nil: it can work.
//   - ErrClosed: it was closed.
//   - ErrUnsupportedDeployment: a server is unfit, or the address of a collection leads
//     to another one by now.
//   - ErrInvalidRequest: ctx is nil.
//   - any other error: a server doesn't answer in time, or Run doesn't work, or has ended
//     with an error.
//     It wraps the error that Run has ended with, or has met last.
//     Ask again later; where Run has ended, start it again, or end the process.
func (c *Coordinator) Healthy(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.closedError(); err != nil {
		return err
	}
	if err := c.catalog.ServersAnswer(ctx); err != nil {
		return asUnauthorized(err)
	}
	if err := c.deployment.ConfirmAll(ctx); err != nil {
		return asUnauthorized(err)
	}
	return withCause(cmp.Or(c.health.Check(), c.outbox.Check()), c.closedError())
}

// checkContext refuses a nil context.
// Where it was used it would end the process, and leave what was begun to recovery.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil: pass context.Background() where there is none")
	}
	return nil
}

// closedError returns ErrClosed once the Coordinator is closed.
func (c *Coordinator) closedError() error {
	if c.engine.Closed() {
		return ErrClosed
	}
	return nil
}

// stopped returns why a call has to end: ctx has ended, or the Coordinator is closed.
func (c *Coordinator) stopped(ctx context.Context) error {
	return withCause(ctx.Err(), c.closedError())
}

// ready refuses work on a closed Coordinator, on an unfit server or collection of the
// transfers or of the named places, and on a deployment with another configuration.
// Its first call for each place talks to the server.
func (c *Coordinator) ready(ctx context.Context, places ...document.Address) error {
	return c.untilFit(ctx, func(ctx context.Context) error { return c.deployment.Connect(ctx, places...) })
}

// readyForAny is ready for work on stored transfers, no matter which places these need.
// It checks the places whose server is that of the transfers.
// The others may be away, and are checked when a transfer needs them.
func (c *Coordinator) readyForAny(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.ConnectSameClient)
}

// readyToRead is ready for a caller that writes nothing, and may have no right to.
func (c *Coordinator) readyToRead(ctx context.Context, places ...document.Address) error {
	return c.untilFit(ctx, func(ctx context.Context) error { return c.deployment.ConnectToRead(ctx, places...) })
}

// untilFit asks the servers whether something can be done, until they have answered, or a
// right is missing, or they have been away for too long.
func (c *Coordinator) untilFit(ctx context.Context, ask func(context.Context) error) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	var tries retry
	for tries.next(ctx, c) {
		if c.engine.Closed() {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := ask(ctx)
		if err == nil || denied(err) || errors.Is(err, collections.ErrUnsupported) {
			return asUnauthorized(err)
		}
		tries.record(try{result: protocol.NotSent, err: err})
	}
	return tries.err(errors.New("the server can't be reached"))
}

// readyFor is ready for the places of a transfer.
// Once these are known to be fit it costs almost nothing.
func (c *Coordinator) readyFor(ctx context.Context, t *document.Transfer) error {
	if c.deployment.Connected(t) && !c.engine.Closed() && ctx != nil && ctx.Err() == nil {
		return nil
	}
	return c.ready(ctx, t.Addresses()...)
}
