package waiters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// elsewhere is how many accounts there are beside those of the bank.
const elsewhere = 50

// lock calls meanwhile while a user's open transaction has written to an account.
func lock(t *testing.T, b *bank.Bank, id string, meanwhile func()) {
	t.Helper()
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	write := func() bool {
		require.NoError(t, session.StartTransaction())
		ctx := mongo.NewSessionContext(t.Context(), session)
		_, err := b.DB.Collection("accounts").UpdateByID(ctx, id, bson.M{"$set": bson.M{"note": time.Now()}})
		if err != nil { // a transfer has just written to it
			require.NoError(t, session.AbortTransaction(ctx))
		}
		return err == nil
	}
	require.Eventually(t, write, time.Minute, time.Millisecond)
	meanwhile()
	require.NoError(t, session.CommitTransaction(mongo.NewSessionContext(t.Context(), session)))
}

// moveElsewhere makes fifty calls a second that don't touch the bank's accounts, each
// with two seconds. It returns how many there were, and how many were in vain.
func moveElsewhere(t *testing.T, c *transfer.Coordinator, name string, d time.Duration) (calls, vain int64) {
	t.Helper()
	var failed atomic.Int64
	var all sync.WaitGroup
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); calls++ {
		req := bank.Move(fmt.Sprint(name, calls), account(calls), account(calls+1), 1)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := c.Transfer(ctx, req); err != nil {
				failed.Add(1)
			}
		})
		<-next.C
	}
	all.Wait()
	return calls, failed.Load()
}

func account(i int64) string { return fmt.Sprint("elsewhere", i%elsewhere) }

func withAccountsElsewhere(t *testing.T) *bank.Bank {
	t.Helper()
	b := bank.New(t, 100_000, 0)
	for i := range int64(elsewhere) {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: account(i), Balance: transfer.Units(1000)})
		require.NoError(t, err)
	}
	return b
}

// checkBooks requires that no money was lost or made.
func checkBooks(t *testing.T, b *bank.Bank) {
	t.Helper()
	sum := int64(0)
	for _, balance := range b.Balances() {
		sum += balance
	}
	require.EqualValues(t, 100_000+elsewhere*1000, sum)
	report := b.MustAudit()
	require.Empty(t, report.Findings)
}

// Those who wait for a locked account, however many and whether a worker runs them or
// their callers do, don't keep out the others.
func TestLockedAccountKeepsNobodyOut(t *testing.T) {
	for name, waitThere := range map[string]func(ctx context.Context, t *testing.T, c *transfer.Coordinator, all *sync.WaitGroup){
		"callers": func(ctx context.Context, _ *testing.T, c *transfer.Coordinator, all *sync.WaitGroup) {
			for i := range 100 {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						_, _ = c.Transfer(context.WithoutCancel(ctx), bank.Move(fmt.Sprint("there", i, "-", n), "a", "b", 1))
					}
				})
			}
		},
		"submitted": func(ctx context.Context, t *testing.T, c *transfer.Coordinator, all *sync.WaitGroup) {
			for i := range 300 {
				_, err := c.Submit(ctx, bank.Move(fmt.Sprint("there", i), "a", "b", 1))
				require.NoError(t, err)
			}
			all.Go(func() { _ = c.Run(ctx) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withAccountsElsewhere(t)
			c := b.NewCoordinator(b.DB)
			there, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			for turn := range 3 {
				lock(t, b, "a", func() {
					if turn == 0 {
						waitThere(there, t, c, &all)
					}
					calls, vain := moveElsewhere(t, c, fmt.Sprint("turn", turn, "-"), 4*time.Second)
					require.Less(t, vain, calls/3, "of %d calls in turn %d", calls, turn)
				})
				moveElsewhere(t, c, fmt.Sprint("free", turn, "-"), 40*time.Millisecond) // some of those there have their turn
			}
			stop()
			all.Wait()
			require.Eventually(t, func() bool { return b.Unfinished() == 0 || name == "submitted" }, time.Minute, 10*time.Millisecond)
			require.NoError(t, c.Close(t.Context()))
			checkBooks(t, b)
		})
	}
}

// A locked account does not come to have all places, however many callers leave while
// they wait for it. Those who come later learn that nothing was stored, and why.
func TestLockedAccountLeavesPlaces(t *testing.T) {
	t.Parallel()
	b := withAccountsElsewhere(t)
	c := b.NewCoordinator(b.DB, transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 512}))
	var all sync.WaitGroup
	var lateness error
	lock(t, b, "a", func() {
		there, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		all.Go(func() {
			next := time.NewTicker(8 * time.Millisecond)
			defer next.Stop()
			for n := 0; there.Err() == nil; n++ {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := c.Transfer(ctx, bank.Move(fmt.Sprint("there", n), "a", "b", 1))
					mu.Lock()
					defer mu.Unlock()
					if !errors.Is(err, transfer.ErrInDoubt) {
						lateness = err
					}
				})
				<-next.C
			}
		})
		moveElsewhere(t, c, "before", 8*time.Second)
		calls, vain := moveElsewhere(t, c, "then", 4*time.Second)
		require.Less(t, vain, calls/3, "of %d calls", calls)
		stop()
		all.Wait()
	})
	require.ErrorIs(t, lateness, context.DeadlineExceeded)
	require.ErrorContains(t, lateness, "an account or document is locked")
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(lateness))
	require.Eventually(t, func() bool { return b.Unfinished() == 0 }, time.Minute, 10*time.Millisecond)
	checkBooks(t, b)
}
