package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/repair"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/words"
)

// Coordinator runs transfers. It is safe for many goroutines; one per process and database is enough. There may be any number of them,
// in any number of processes, over the same documents.
type Coordinator struct {
	settings   settings
	catalog    *collections.Catalog
	deployment *deployment.Deployment
	retention  *retention.Retention
	queries    *queries.Queries
	accounts   *accounts.Accounts
	histories  *history.Reader
	repairs    *repair.Repairs
	store      *mongostore.Store
	engine     *engine.Engine
	lookout    *lookout.Lookout
	lines      lines
	log        *slog.Logger
	now        func() time.Time
	wake       chan struct{} // tells a worker of this process that something was submitted
	// historyFrom returns since when every committed transfer is still stored.
	historyFrom func(context.Context) (time.Time, error)
}

// NewCoordinator returns a Coordinator over the collections accounts and transfers of db, unless options say otherwise. It doesn't
// talk to the server: [Coordinator.Setup] does, once per database. The error wraps ErrInvalidRequest.
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
		Now:       now,
	})
	if err != nil {
		return nil, invalid("%w", err)
	}
	queries, kept := queries.New(catalog), retention.New(catalog, s.retention)
	store, err := mongostore.New(catalog, kept, mongostore.Limits{Markers: s.markerLimit, FenceBytes: s.fenceBytes})
	if err != nil {
		return nil, invalid("%w", err)
	}
	return &Coordinator{
		settings:   s,
		catalog:    catalog,
		deployment: deployment.New(catalog, kept),
		retention:  kept,
		queries:    queries,
		accounts:   accounts.New(catalog),
		histories:  history.New(catalog),
		repairs:    repair.New(catalog),
		store:      store,
		engine:     engine.New(store, s.logger, now, engine.Limits(s.group)),
		lookout:    lookout.New(queries, s.logger, now),
		log:        s.logger,
		now:        now,
		wake:       make(chan struct{}, 1),

		historyFrom: kept.HistoryFrom,
	}, nil
}

// Setup creates the collections, the indexes, and the deployment's note, where they are
// missing, and checks that the servers and collections are fit. It may be called again,
// and by many at once; where nothing is missing it writes nothing, and needs no right to
// create.
//
// The note lies beside each collection of accounts, documents and transfers, under its
// name with .transfer added. It tells which transfers collection it belongs to, the names
// of the fields, how IDs are stored, and in which format. A coordinator with other
// options is refused, by Setup, [Coordinator.Check] and the first use of each collection,
// before anything moves: see [Coordinator.Adopt].
//
// The error wraps ErrUnsupportedDeployment where the deployment is at fault, and says
// what to do about it: a server that is no MongoDB 5.0 or later, or no replica set;
// another configuration than the deployment's; a view, a capped or a collated collection,
// or one that is sharded by something else than _id; an index of the user's that lets the
// server remove transfers or accounts, that is unique over what transfers change, or that
// has the name of one of the library's; a validator that refuses the library's fields.
func (c *Coordinator) Setup(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.Setup)
}

// Check checks what [Coordinator.Setup] checks, and that all that Setup makes is there.
// It writes nothing, and needs rights to read only. It is for processes that start beside
// others: Setup is for the job that runs before them.
func (c *Coordinator) Check(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.Check)
}

// Adopt makes this Coordinator's configuration that of the deployment: its transfers
// collection, its field names, how it stores IDs. It is for a change on purpose, which
// nothing else makes. Adopt rewrites the notes only: what is stored in accounts under
// other names has to be renamed before, by you.
//
// Stop every other process that uses these collections first, and let
// [Coordinator.Recover] of the old configuration bring to its end what they have begun: a
// process that has checked the notes before goes on as it was. Adopt refuses with
// ErrUnsupportedDeployment while a transfer of this transfers collection is unfinished,
// or an account or a document carries a marker, under the old name or the new one. It
// reads all accounts to make sure. It does not change a deployment of another stored
// format.
func (c *Coordinator) Adopt(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.Adopt)
}

// Close stops taking work and waits for what was begun. When ctx ends first, the rest is stopped where it is, for recovery to finish,
// and the error is that of ctx. A Run of this coordinator ends. The client is not disconnected.
func (c *Coordinator) Close(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	err := c.engine.Close(ctx)
	c.lookout.Close(ctx)
	return err
}

// ready refuses work on a closed coordinator, on an unfit server or collection of the
// transfers or of the named places, and on a deployment that is configured otherwise. Its
// first call for each talks to the server.
func (c *Coordinator) ready(ctx context.Context, places ...document.Address) error {
	return c.untilFit(ctx, func(ctx context.Context) error { return c.deployment.Connect(ctx, places...) })
}

// readyForAny is ready for work on what is stored, whatever places that needs: for those
// whose server is that of the transfers. The others may be away, and are looked at when a
// transfer needs them.
func (c *Coordinator) readyForAny(ctx context.Context) error {
	return c.untilFit(ctx, c.deployment.ConnectSameClient)
}

// readyToRead is ready for whoever writes nothing, and may have no right to.
func (c *Coordinator) readyToRead(ctx context.Context, places ...document.Address) error {
	return c.untilFit(ctx, func(ctx context.Context) error { return c.deployment.ConnectToRead(ctx, places...) })
}

// untilFit asks the servers until they have answered whether something can be done, or a
// right is missing, or they have been away for too long.
func (c *Coordinator) untilFit(ctx context.Context, ask func(context.Context) error) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	var try retry
	for try.next(ctx, c) {
		if c.engine.Closed() {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := ask(ctx)
		if err == nil || refused(err) || errors.Is(err, collections.ErrUnsupported) {
			return named(err)
		}
		try.record(protocol.NotSent, err)
	}
	return try.err(errors.New("the server can't be reached"))
}

// readyFor is ready for the places of a transfer. Once these are known to be fit it costs
// next to nothing.
func (c *Coordinator) readyFor(ctx context.Context, t *document.Transfer) error {
	if c.deployment.Connected(t) && !c.engine.Closed() && ctx != nil && ctx.Err() == nil {
		return nil
	}
	return c.ready(ctx, t.Addresses()...)
}

// sound refuses a stored transfer that was changed since, or that a later version has written.
func sound(t document.Transfer) error {
	switch {
	case !genuine(t):
		return fmt.Errorf("%w: what it moves is not what its digest says", document.ErrUnreadable)
	case t.DecidedBefore(): // to go on with it would move the money once more
		return fmt.Errorf("%w: it is %s, and what an earlier decision has stored is there", document.ErrUnreadable, t.State)
	case !t.SoundPart():
		return fmt.Errorf("%w: what is posted is no part of what is held", document.ErrUnreadable)
	}
	return nil
}

// genuine reports whether a stored transfer moves what was asked for.
func genuine(t document.Transfer) bool { return bytes.Equal(t.Digest, digest(t)) && capped(t) }

// unknownState is the error of a stored transfer in a state that this version doesn't know.
func unknownState(t document.Transfer) error {
	return fmt.Errorf("%w: its state is %s", document.ErrUnreadable, words.Quote(string(t.State)))
}

// errAway is returned where a server that a transfer needs has not said yet whether it is fit.
var errAway = errors.New("a server can't be reached")

// newWork prepares an execution of a transfer, under an owner of its own. Not the process's: two executions of one process
// must not take each other's decisions for their own.
//
// A stored transfer whose legs are not those of its digest is left alone: legs that were lost or changed since would make or lose money,
// and a digest of a later version may stand for what this one doesn't know.
func (c *Coordinator) newWork(ctx context.Context, t document.Transfer, reason string) (*mongostore.Attempt, error) {
	if err := sound(t); err != nil {
		return nil, err
	}
	w, err := c.store.NewAttempt(t, c.settings.owner+"-"+rand.Text()[:16])
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx, &t); err != nil {
		return nil, err
	}
	w.Threshold = c.settings.stallThreshold
	w.Describe = func(refusal protocol.Refusal) string {
		if err := explained(t, refusal, w.Evidence(refusal.Participant)); err != nil {
			return err.Error()
		}
		return reason
	}
	return w, nil
}

// connect makes sure that the servers of a transfer are fit, where that isn't known yet.
func (c *Coordinator) connect(ctx context.Context, t *document.Transfer) error {
	if c.deployment.Connected(t) {
		return nil
	}
	switch err := c.deployment.Connect(ctx, t.Addresses()...); {
	case errors.Is(err, collections.ErrUnsupported), refused(err):
		return named(err)
	case err != nil:
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return nil
}
