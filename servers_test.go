package transfer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// branches is a bank with an account a here, and one in the ledger other, in a collection of the same name on another server.
type branches struct {
	*bank
	server *mongotest.Server
	both   *transfer.Coordinator // that knows both ledgers
	start  map[string]int64
}

// startServer starts a server beside that of all tests. It ends with the test.
func startServer(t *testing.T) *mongotest.Server {
	t.Helper()
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

func newBranches(t *testing.T, server *mongotest.Server, here, there int64) *branches {
	t.Helper()
	b := &branches{bank: newBank(t, here), server: server, start: map[string]int64{"": here, "other": there}}
	b.both = b.coordinator(b.db, b.other())
	require.NoError(t, b.both.Setup(t.Context()))
	other, err := b.both.Ledger("other")
	require.NoError(t, err)
	_, err = other.Open(t.Context(), transfer.Account{ID: "a", Balance: transfer.Units(there)})
	require.NoError(t, err)
	return b
}

// other registers the ledger on the other server, through a client of its own.
func (b *branches) other(opts ...*options.ClientOptions) transfer.Option {
	b.t.Helper()
	client, err := mongo.Connect(append([]*options.ClientOptions{options.Client().ApplyURI(b.server.URI())}, opts...)...)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // otherwise it would take leave of a server that a test has stopped, for 30 s
		require.NoError(b.t, client.Disconnect(now))
	})
	return transfer.WithLedger("other", client.Database(b.db.Name()).Collection("accounts"))
}

// across asks for a transfer from here to the other server, or back if units are negative.
func across(id string, units int64) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-units)}, {Ledger: "other", Account: "a", Amount: transfer.Units(units)},
	}}
}

// audit requires that nothing is in flight on either server, and that each balance is what the successful transfers make of it.
func (b *branches) audit() {
	b.t.Helper()
	require.Zero(b.t, b.unfinished())
	want := map[string]int64{}
	for ledger, balance := range b.start {
		want[ledger] = balance
	}
	for rec, err := range b.both.List(b.t.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}}) {
		require.NoError(b.t, err)
		for _, leg := range rec.Legs {
			want[leg.Ledger] += units(b.t, leg.Amount)
		}
	}
	requireLedgers(b.t, b.both, want)
}

// A transfer between two servers, of which neither knows of the other, happens on both or on neither.
func TestTransferOverTwoServers(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	t.Run("success", func(t *testing.T) {
		t.Parallel()
		b := newBranches(t, server, 100, 5)
		_, err := b.both.Transfer(t.Context(), across("there", 60))
		require.NoError(t, err)
		requireLedgers(t, b.both, map[string]int64{"": 40, "other": 65})
		_, err = b.both.Transfer(t.Context(), across("back", -65))
		require.NoError(t, err)
		requireLedgers(t, b.both, map[string]int64{"": 105, "other": 0})
		b.audit()
	})
	t.Run("the other server's account refuses", func(t *testing.T) {
		t.Parallel()
		b := newBranches(t, server, 100, 50)
		var looks atomic.Int64
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); e.CommandName == "find" && level == "linearizable" {
				looks.Add(1)
			}
		}}
		c := b.coordinator(b.db, b.other(options.Client().SetMonitor(monitor)))
		rec, err := c.Transfer(t.Context(), across("t", -60))
		b.requireRefused(rec, err, transfer.ErrInsufficientFunds, "insufficientFunds")
		var refused *transfer.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "other", refused.Ledger)
		require.Equal(t, transfer.Units(50), *refused.Balance)
		require.NotZero(t, looks.Load(), "only a linearizable read tells what that server's primary has")
		requireLedgers(t, b.both, map[string]int64{"": 100, "other": 50})
		b.audit()
	})
}

// A process that dies in the middle of a transfer between two servers leaves it to recovery, which finishes it on both.
func TestDeathBetweenTwoServers(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	// The commands: two reads of fences, the claim, two prepares, the decision, two settles, the finish.
	for n := 3; n <= 8; n++ {
		for _, what := range []fault{lost, answerLost} {
			for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
				t.Run(fmt.Sprintf("command %d/%s/policy %d", n, what, policy), func(t *testing.T) {
					t.Parallel()
					b := newBranches(t, server, 100, 5)
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					w := &wire{at: n, what: what, die: true, onDeath: cancel}
					dying := b.coordinator(b.through(w.client()), b.other(w.client()))
					_, err := dying.Transfer(ctx, across("t", 60))
					kill(dying)
					requireUnended(t, err)
					require.True(t, w.hasStruck())

					moved := int64(60)
					if policy == transfer.RollBack && (n < 5 || n == 5 && what == lost) {
						moved = 0 // it was not committed
					}
					report := b.recoverAll(b.other(), transfer.WithStallPolicy(policy))
					require.LessOrEqual(t, report.Found, 1)
					requireLedgers(t, b.both, map[string]int64{"": 100 - moved, "other": 5 + moved})
					b.audit()
				})
			}
		}
	}
}

// A server that is away holds up the transfers that touch it, and no others, not even on the same account.
func TestOtherServerIsAway(t *testing.T) {
	t.Parallel()
	b := newBranches(t, startServer(t), 100, 5)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	_, err = b.both.Transfer(t.Context(), across("before", 10))
	require.NoError(t, err)
	require.NoError(t, b.server.Stop())

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err = b.both.Transfer(ctx, across("away", 20))
	require.ErrorIs(t, err, transfer.ErrInDoubt, "it was claimed here")
	for i := range 5 {
		rec, err := b.both.Transfer(t.Context(), move(fmt.Sprint("here", i), "a", "b", 1))
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	rec, err := b.both.Get(t.Context(), "away")
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, rec.State)
	got, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(85), got.Posted)
	b.requireBalance("b", 5)

	// A process that starts meanwhile works on what it can reach, and tells which ledger it can't.
	fresh := b.coordinator(b.db, b.other())
	_, err = fresh.Transfer(t.Context(), move("fresh", "a", "b", 1))
	require.NoError(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err = fresh.Transfer(ctx, across("fresh, away", 20))
	require.ErrorContains(t, err, `ledger "other"`)
	_, err = b.Get(t.Context(), "fresh, away")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
}

// Documents here may have the name of a ledger on another server. While that server is away a process that has never seen it can't tell
// whether they are accounts: it refuses effects on them, and nothing else.
func TestDocumentsNamedAsALedgerElsewhere(t *testing.T) {
	t.Parallel()
	b := newShop(t, 100, 0)
	server := startServer(t)
	far, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, far.Disconnect(now))
	})
	opts := append(orders(b.db), transfer.WithLedger("far", far.Database(b.db.Name()).Collection("orders")))
	acquainted := b.coordinator(b.db, opts...)
	_, err = acquainted.Transfer(t.Context(), payment("p-1", "o-1", 60))
	require.NoError(t, err)
	require.NoError(t, server.Stop())

	b.insert("orders", order("o-3"))
	_, err = acquainted.Transfer(t.Context(), payment("p-3", "o-3", 10))
	require.NoError(t, err, "it was told before")
	fresh := b.coordinator(b.db, opts...)
	_, err = fresh.Transfer(t.Context(), move("t", "a", "b", 5))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err = fresh.Transfer(ctx, payment("p-2", "o-2", 10))
	require.ErrorContains(t, err, `whether documents "orders" and ledger "far" are one collection`)
	require.NotErrorIs(t, err, transfer.ErrInDoubt)
	_, err = b.Get(t.Context(), "p-2")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	b.order("o-2", "unpaid", false)
	b.audit(initial(100, 0))
}
