package mongostore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// patience is how long the driver looks for a server in these tests.
const patience = 400 * time.Millisecond

// newHalfAway returns a store whose ledger "eu" is on a server that is away, and whose clock stands still, so many nanoseconds after now.
func newHalfAway(t *testing.T, after *atomic.Int64) *bank {
	t.Helper()
	away := options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true").SetServerSelectionTimeout(patience)
	client, err := mongo.Connect(away)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	now := time.Now()
	return newBank(t, func(c *config) {
		c.Ledgers["eu"] = client.Database(c.Transfers.Database().Name()).Collection("accounts_eu")
		c.Now = func() time.Time { return now.Add(time.Duration(after.Load())) }
	})
}

// connects asks so many at once whether a ledger's server can be used, and returns how long that took in all.
func (b *bank) connects(n int) time.Duration {
	b.t.Helper()
	errs := make(chan error, n)
	begun := time.Now()
	for range n {
		go func() { errs <- b.store.Connect(b.t.Context(), document.Address{Name: "eu"}) }()
	}
	for range n {
		require.Error(b.t, <-errs)
	}
	return time.Since(begun)
}

// Hundreds who need a server that is away wait for one answer, not in turn for one each. A second later it is asked again.
func TestServerThatIsAwayIsAskedOnce(t *testing.T) {
	t.Parallel()
	var after atomic.Int64
	b := newHalfAway(t, &after)
	require.NoError(t, b.store.Connect(t.Context()))
	require.Less(t, b.connects(200), 5*patience)
	require.Less(t, b.connects(1), patience/2, "it was asked a moment ago")
	after.Store(int64(collections.FailureMemory))
	require.GreaterOrEqual(t, b.connects(1), patience/2, "it is asked again")
}

// Who gives up says nothing of the server: others ask it.
func TestGivingUpIsNoAnswer(t *testing.T) {
	t.Parallel()
	var after atomic.Int64
	b := newHalfAway(t, &after)
	require.NoError(t, b.store.Connect(t.Context()))
	short, cancel := context.WithTimeout(t.Context(), patience/20)
	defer cancel()
	require.ErrorIs(t, b.store.Connect(short, document.Address{Name: "eu"}), context.DeadlineExceeded)
	require.GreaterOrEqual(t, b.connects(1), patience/2)
}
