package deployment_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// patience is for how long the driver searches for a server in these tests.
const patience = 400 * time.Millisecond

// newHalfAway returns a bank whose ledger "eu" is on a server that is away. Its clock
// stands still, the given number of nanoseconds after now.
func newHalfAway(t *testing.T, after *atomic.Int64) *storetest.Bank {
	t.Helper()
	away := options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true").SetServerSelectionTimeout(patience)
	client, err := mongo.Connect(away)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	now := time.Now()
	return storetest.New(t, func(c *storetest.Config) {
		c.Ledgers["eu"] = client.Database(c.Transfers.Database().Name()).Collection("accounts_eu")
		c.Now = func() time.Time { return now.Add(time.Duration(after.Load())) }
	})
}

// connects lets n callers ask at once whether the server of the ledger "eu" can be used,
// and returns how long all of them took.
func connects(b *storetest.Bank, n int) time.Duration {
	b.T.Helper()
	errs := make(chan error, n)
	begun := time.Now()
	for range n {
		go func() { errs <- b.Store.Connect(b.T.Context(), document.Address{Name: "eu"}) }()
	}
	for range n {
		require.Error(b.T, <-errs)
	}
	return time.Since(begun)
}

// Hundreds of callers that need a server that is away wait for one answer, and not each
// in turn for its own. A second later the server is asked again.
func TestServerThatIsAwayIsAskedOnce(t *testing.T) {
	t.Parallel()
	var after atomic.Int64
	b := newHalfAway(t, &after)
	require.NoError(t, b.Store.Connect(t.Context()))
	require.Less(t, connects(b, 200), 5*patience)
	require.Less(t, connects(b, 1), patience/2, "it was asked a moment ago")
	after.Store(int64(time.Second))
	require.GreaterOrEqual(t, connects(b, 1), patience/2, "it is asked again")
}

// A caller that gives up has learnt nothing about the server: others ask it.
func TestGivingUpIsNoAnswer(t *testing.T) {
	t.Parallel()
	var after atomic.Int64
	b := newHalfAway(t, &after)
	require.NoError(t, b.Store.Connect(t.Context()))
	short, cancel := context.WithTimeout(t.Context(), patience/20)
	defer cancel()
	require.ErrorIs(t, b.Store.Connect(short, document.Address{Name: "eu"}), context.DeadlineExceeded)
	require.GreaterOrEqual(t, connects(b, 1), patience/2)
}
