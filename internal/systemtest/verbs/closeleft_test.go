package verbs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A service that disconnects its client first, and then closes the Coordinator, learns
// that transfers are unfinished.
func TestCloseAfterDisconnect(t *testing.T) {
	t.Parallel()
	for _, at := range []transfer.ReturnAt{transfer.AtCommit, transfer.AtSettled, transfer.AtSuccess} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			w := &bank.Wire{Of: bank.Writes, To: "accounts", What: bank.Lost}
			db := b.Through(w.Client())
			w.OnStrike = func() { disconnect(db.Client()) }
			c := b.NewCoordinator(db, transfer.WithReturnAt(at))
			_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
			require.ErrorIs(t, err, transfer.ErrInDoubt)
			for range 2 {
				err = c.Close(t.Context())
				require.ErrorIs(t, err, mongo.ErrClientDisconnected)
				require.ErrorContains(t, err, "what was begun was left to recovery (transfers: 1)")
			}
			b.ExpireAll()
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// disconnect disconnects a client without waiting for what it has under way.
func disconnect(client *mongo.Client) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = client.Disconnect(now)
}

// Close heeds its context though an observer doesn't return.
func TestCloseWhileAnObserverBlocks(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	reached, released := make(chan struct{}), make(chan struct{})
	reach, release := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	c := b.NewCoordinator(b.DB, transfer.WithObserver(transfer.Observer{CommandDone: func(done transfer.CommandInfo) {
		if done.Verb == "claim" {
			reach()
			<-released
		}
	}}))
	moved := make(chan error, 1)
	go func() { moved <- bank.ErrorOf(c.Transfer(context.Background(), bank.Move("t", "a", "b", 10))) }()
	<-reached
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(short) }()
	select {
	case err := <-closed:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.NewTimer(time.Minute).C:
		require.Fail(t, "Close waits for the observer")
	}
	release()
	require.ErrorIs(t, <-moved, transfer.ErrInDoubt)
	require.NoError(t, c.Close(t.Context()))
	notes, err := b.DB.Collection("transfers.processes").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, notes, "others take over soon what it has left, as its note grows old")
	b.ExpireAll()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}
