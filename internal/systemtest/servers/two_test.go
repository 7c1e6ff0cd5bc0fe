package servers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A transfer between two servers that don't know each other happens on both or on
// neither.
func TestTransferOverTwoServers(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	t.Run("success", func(t *testing.T) {
		t.Parallel()
		b := bank.NewBranches(t, server, 100, 5)
		_, err := b.Both.Transfer(t.Context(), bank.Across("there", 60))
		require.NoError(t, err)
		bank.RequireLedgers(t, b.Both, map[string]int64{"": 40, "other": 65})
		_, err = b.Both.Transfer(t.Context(), bank.Across("back", -65))
		require.NoError(t, err)
		bank.RequireLedgers(t, b.Both, map[string]int64{"": 105, "other": 0})
		b.CheckBooks()
	})
	t.Run("the other server's account refuses", func(t *testing.T) {
		t.Parallel()
		b := bank.NewBranches(t, server, 100, 50)
		var looks atomic.Int64
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); e.CommandName == "find" && level == "linearizable" {
				looks.Add(1)
			}
		}}
		c := b.NewCoordinator(b.DB, b.Other(options.Client().SetMonitor(monitor)))
		rec, err := c.Transfer(t.Context(), bank.Across("t", -60))
		b.RequireRefused(rec, err, transfer.ErrInsufficientFunds, "insufficientFunds")
		var refused *transfer.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "other", refused.Ledger)
		require.Equal(t, transfer.Units(50), *refused.Balance)
		require.NotZero(t, looks.Load(), "only a linearizable read tells what that server's primary has")
		bank.RequireLedgers(t, b.Both, map[string]int64{"": 100, "other": 50})
		b.CheckBooks()
	})
}

// A process that dies in the middle of a transfer between two servers leaves it to
// recovery, which finishes it on both.
func TestDeathBetweenTwoServers(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	// The commands: two reads of fences, the claim, two prepares, the record and a pay,
	// a settle and a clear, the finish.
	for n := 3; n <= 9; n++ {
		for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost} {
			for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
				t.Run(fmt.Sprintf("command %d/%s/policy %d", n, what, policy), func(t *testing.T) {
					t.Parallel()
					b := bank.NewBranches(t, server, 100, 5)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					w := &bank.Wire{At: n, What: what, Die: true, OnDeath: cancel}
					dying := b.NewCoordinator(b.Through(w.Client()), b.Other(w.Client()))
					_, err := dying.Transfer(ctx, bank.Across("t", 60))
					bank.Kill(dying)
					bank.RequireUnended(t, err)
					require.True(t, w.HasStruck())

					moved := int64(60)
					if policy == transfer.RollBack && (n < 4 || n == 4 && what == bank.Lost) {
						moved = 0 // it was not committed
					}
					if n == 4 && what == bank.AnswerLost {
						requirePrepared(b, "t") // the other prepare was sent, too
					}
					report := b.RecoverAll(b.Other(), transfer.WithStallPolicy(policy))
					require.LessOrEqual(t, report.Found, 1)
					bank.RequireLedgers(t, b.Both, map[string]int64{"": 100 - moved, "other": 5 + moved})
					b.CheckBooks()
				})
			}
		}
	}
}

// requirePrepared waits until both accounts have a trace of a transfer.
func requirePrepared(b *bank.Branches, id string) {
	b.T.Helper()
	here := b.DB.Collection("accounts")
	trace := bson.M{"pending." + id: bson.M{"$exists": true}}
	bank.Until(b.T, 10*time.Millisecond, func() (bool, error) {
		n, err := here.CountDocuments(b.T.Context(), trace)
		if err != nil {
			return false, err
		}
		more, err := b.There().CountDocuments(b.T.Context(), trace)
		return n+more == 2, err
	})
}

// A server that is away delays the transfers that touch it, and no others, not even on
// the same account.
func TestOtherServerIsAway(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.StartServer(t), 100, 5)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	_, err = b.Both.Transfer(t.Context(), bank.Across("before", 10))
	require.NoError(t, err)
	require.NoError(t, b.Server.Stop())

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err = b.Both.Transfer(ctx, bank.Across("away", 20))
	require.ErrorIs(t, err, transfer.ErrInDoubt, "it was claimed here")
	for i := range 5 {
		rec, err := b.Both.Transfer(t.Context(), bank.Move(fmt.Sprint("here", i), "a", "b", 1))
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	rec, err := b.Both.Get(t.Context(), "away")
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, rec.State)
	got, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(85), got.Posted)
	b.RequireBalance("b", 5)

	// A process that starts meanwhile works on the transfers that it can, and reports
	// which ledger it can't reach.
	fresh := b.NewCoordinator(b.DB, b.Other())
	_, err = fresh.Transfer(t.Context(), bank.Move("fresh", "a", "b", 1))
	require.NoError(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	_, err = fresh.Transfer(ctx, bank.Across("fresh, away", 20))
	require.ErrorContains(t, err, `ledger "other"`)
	_, err = b.Get(t.Context(), "fresh, away")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
}

// Documents here may have the name of a ledger on another server.
// While that server is away, a process that has never reached it can't know whether they
// are accounts.
// It refuses effects on them, and nothing else.
func TestDocumentsNamedAsALedgerElsewhere(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	server := bank.StartServer(t)
	far := bank.Client(t, server.URI())
	opts := append(bank.Orders(b.DB), transfer.WithLedger("far", far.Database(b.DB.Name()).Collection("orders")))
	acquainted := b.NewCoordinator(b.DB, opts...)
	_, err := acquainted.Transfer(t.Context(), bank.Payment("p-1", "o-1", 60))
	require.NoError(t, err)
	require.NoError(t, server.Stop())

	b.Insert("orders", bank.Order("o-3"))
	_, err = acquainted.Transfer(t.Context(), bank.Payment("p-3", "o-3", 10))
	require.NoError(t, err, "it was told before")
	fresh := b.NewCoordinator(b.DB, opts...)
	_, err = fresh.Transfer(t.Context(), bank.Move("t", "a", "b", 5))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	_, err = fresh.Transfer(ctx, bank.Payment("p-2", "o-2", 10))
	require.ErrorContains(t, err, `whether documents "orders" and ledger "far" are one collection`)
	require.NotErrorIs(t, err, transfer.ErrInDoubt)
	_, err = b.Get(t.Context(), "p-2")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	b.RequireOrder("o-2", "unpaid", false)
	b.CheckBooks(bank.Balances(100, 0))
}
