package recovery

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/wire"
)

// errClosed is the error of a closed Coordinator.
var errClosed = errors.New("closed")

// unconnected returns settings of a Coordinator whose server is away. So are the servers
// of its ledgers, one for each.
// A transfer that it finishes is stuck at once.
func unconnected(t *testing.T, ledgers ...string) *Settings {
	t.Helper()
	home := away(t)
	accounts := map[string]*mongo.Collection{"": home.Collection("accounts")}
	for _, name := range ledgers {
		accounts[name] = away(t).Collection(name)
	}
	catalog, err := collections.New(collections.Config{
		Transfers: home.Collection("transfers"), Ledgers: accounts, Now: time.Now,
	})
	require.NoError(t, err)
	store, err := mongostore.New(catalog, retention.New(catalog, 0), mongostore.Limits{Markers: 1})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	return &Settings{
		Queries:    queries.New(catalog),
		Engine:     engine.New(store, log, time.Now, engine.Limits{MaxBatch: 512, MaxInFlight: 2, MaxPending: 2048}),
		Log:        log,
		Now:        time.Now,
		MaxPending: 2048,
		ErrClosed:  errClosed,
		Denied:     func(err error) bool { return wire.Denied(err) != nil },
		Named:      func(err error) error { return err },
		Finish: func(context.Context, document.Transfer, protocol.Start, time.Duration) Result {
			return Result{Err: errors.New("it is not registered here")}
		},
	}
}

// away returns a database on a server that is away.
func away(t *testing.T) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client.Database("bank")
}

// between returns a transfer between the default ledger and others.
func between(ledgers ...string) document.Transfer {
	t := document.Transfer{ID: "t", Legs: []document.Leg{{}}}
	for _, name := range ledgers {
		t.Legs = append(t.Legs, document.Leg{Ledger: name})
	}
	return t
}

// clocked are slots with a clock of their own.
type clocked struct {
	*slots
	t   *testing.T
	now time.Time
}

// newClocked returns slots for transfers of ledgers on clusters of their own.
func newClocked(t *testing.T, size int, ledgers ...string) *clocked {
	t.Helper()
	c := &clocked{t: t, now: time.Now()}
	settings := unconnected(t, ledgers...)
	settings.Now = func() time.Time { return c.now }
	c.slots = newSlots(settings, size)
	return c
}

// to returns the route of transfers between the default ledger and others.
func (c *clocked) to(ledgers ...string) *route { return c.routeOf(between(ledgers...)) }

// fill enters a route for as long as there is room, and returns how often that was.
func (c *clocked) fill(r *route) (n int) {
	c.t.Helper()
	for entered := true; entered; n++ {
		require.LessOrEqual(c.t, n, c.size)
		entered, _ = c.enter(r)
	}
	return n - 1
}

// prove makes a route show that it doesn't hang.
func (c *clocked) prove(r *route) {
	c.t.Helper()
	entered, _ := c.enter(r)
	require.True(c.t, entered)
	c.leave(r, c.now, Answered)
}

// sweepOf returns a sweep with slots of its own.
func sweepOf(settings *Settings) *sweep {
	return newSweep(settings, newSlots(settings, settings.sweepSlots()))
}

// What a worker and the sweeps have at hand leaves half of the places to callers.
func TestHalfOfThePlacesAreForOthers(t *testing.T) {
	t.Parallel()
	for places, slots := range map[int]int{1: 2, 128: 64, 512: 256, 2048: workerWidth, 65536: workerWidth} {
		require.Equal(t, slots, (&Settings{MaxPending: places}).workerSlots())
	}
	require.Equal(t, 64, (&Settings{MaxPending: 128}).sweepSlots())
}
