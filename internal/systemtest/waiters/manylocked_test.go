package waiters

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

// lockAll writes to all accounts whose IDs begin so, in an open transaction.
func lockAll(t *testing.T, b *bank.Bank, prefix string) (release func()) {
	t.Helper()
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	require.NoError(t, session.StartTransaction())
	ctx := mongo.NewSessionContext(t.Context(), session)
	_, err = b.DB.Collection("accounts").UpdateMany(ctx,
		bson.M{"_id": bson.M{"$regex": "^" + prefix}}, bson.M{"$set": bson.M{"note": 1}})
	require.NoError(t, err)
	return func() {
		require.NoError(t, session.CommitTransaction(ctx))
		session.EndSession(context.WithoutCancel(t.Context()))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A transaction that has locked more accounts than there are places, each of which is
// wanted, keeps those of other accounts out for seconds only, and not for as long as it
// lasts.
func TestManyLockedAccounts(t *testing.T) {
	t.Parallel()
	const places, locked, released = 128, 300, 5
	b := withAccountsElsewhere(t)
	for i := range locked + released {
		id := fmt.Sprint("locked", i)
		if i >= locked {
			id = fmt.Sprint("released", i-locked)
		}
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id})
		require.NoError(t, err)
	}
	c := b.NewCoordinator(b.DB, transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: places}))
	moveElsewhere(t, c, "warm", time.Second)
	unlock, release := lockAll(t, b, "locked"), lockAll(t, b, "released")
	there, stop := context.WithCancel(t.Context())
	defer stop()
	var all, those sync.WaitGroup
	for i := range released {
		those.Go(func() {
			_, err := c.Transfer(t.Context(), bank.Move(fmt.Sprint("released", i), account(int64(i)), fmt.Sprint("released", i), 1))
			require.NoError(t, err)
		})
	}
	all.Go(func() {
		next := time.NewTicker(10 * time.Millisecond)
		defer next.Stop()
		for i := 0; there.Err() == nil; i++ {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = c.Transfer(ctx, bank.Move(fmt.Sprint("there", i), account(int64(i)), fmt.Sprint("locked", i%locked), 1))
			})
			<-next.C
		}
	})
	turn := 0
	require.Eventually(t, func() bool {
		turn++
		calls, vain := moveElsewhere(t, c, fmt.Sprint("turn", turn, "-"), 2*time.Second)
		return vain < calls/10
	}, time.Minute, time.Millisecond)
	release()
	soon, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	free := make(chan struct{})
	go func() { those.Wait(); close(free) }()
	for round := 0; !isClosed(free) && soon.Err() == nil; round++ {
		moveElsewhere(t, c, fmt.Sprint("meanwhile", round, "-"), time.Second)
	}
	require.True(t, isClosed(free), "accounts that are free again are not served while others are locked")
	stop()
	unlock()
	all.Wait()
	<-free
	require.Eventually(t, func() bool { return b.Unfinished() == 0 }, time.Minute, 10*time.Millisecond)
	checkBooks(t, b)
}
