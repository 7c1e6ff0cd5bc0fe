package operations

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An account that is closed between the claim and the prepare refuses the transfer, and
// nothing moves.
func TestPayeeClosesInBetween(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	var closed atomic.Int64
	monitor := &event.CommandMonitor{Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "insert" && b.CloseAccount(ctx, "b") == nil {
			closed.Add(1)
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
	for _, id := range []string{"cold", "warm"} {
		rec, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 60))
		require.Positive(t, closed.Swap(0), "the account was closed while the transfer was under way")
		b.RequireRefused(rec, err, transfer.ErrAccountClosed, "accountClosed")
		require.Equal(t, bank.Balances(100, 0), b.Balances())
		require.NoError(t, b.ReopenAccount(t.Context(), "b"))
	}
	_, err := b.Transfer(t.Context(), bank.Move("open again", "a", "b", 60))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// The environment of a process that works for a test: its database and its name.
const (
	workerDatabase = "TRANSFER_TEST_WORKER_DATABASE"
	workerOwner    = "TRANSFER_TEST_WORKER_OWNER"
)

// TestWorkerProcess is run by the processes of TestWorkerProcesses. It is a worker that
// ends with its standard input.
func TestWorkerProcess(t *testing.T) {
	name := os.Getenv(workerDatabase)
	if name == "" {
		return // There is nothing to test: this is not a process that another test has started.
	}
	c, err := transfer.NewCoordinator(mongotest.Client(t).Database(name), transfer.WithOwner(os.Getenv(workerOwner)))
	require.NoError(t, err)
	require.NoError(t, c.Run(bank.UntilInputEnds(t)))
	require.NoError(t, c.Close(t.Context()))
}

// Processes that work for one bank share the submitted transfers.
// One of them runs each transfer, once, and exactly those succeed that the money covers.
func TestWorkerProcesses(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	names := []string{"first", "second"}
	var workers []*bank.Process
	for _, owner := range names {
		workers = append(workers, bank.StartProcess(t, "TestWorkerProcess", owner,
			workerDatabase+"="+b.DB.Name(), workerOwner+"="+owner))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seen := map[string]bool{}
	run := func(ids []string, units int64) (succeeded int) {
		for _, id := range ids {
			_, err := b.Submit(ctx, bank.Move(id, "a", "b", units))
			require.NoError(t, err)
		}
		for _, id := range ids {
			rec, err := b.Wait(ctx, id)
			if err == nil {
				succeeded++
			} else {
				require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
			}
			require.EqualValues(t, 1+rec.Attempts, rec.Epoch, "transfer %s was claimed more than once", id)
			owner, _, _ := strings.Cut(rec.Owner, "-")
			require.Contains(t, names, owner)
			seen[owner] = true
		}
		return succeeded
	}
	require.Equal(t, 25, run(bank.Numbered("t", 30), 4))
	for round := 0; len(seen) < len(names); round++ { // One may have been faster; until the context ends, the other has a chance.
		require.Zero(t, run(bank.Numbered(fmt.Sprint("more", round, "-"), 10), 1), "all the money was gone")
	}
	for _, worker := range workers {
		worker.End()
	}
	require.Equal(t, bank.Balances(0, 100), b.Balances())
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer with any ID moves its money, is found under its ID, and leaves nothing
// behind.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, id := range bank.OddIDs() {
		rec, err := b.Transfer(ctx, bank.Move(id, "a", "b", 1))
		require.NoError(t, err, "%q", id)
		require.Equal(t, id, rec.ID)
		stored, err := b.Get(ctx, id)
		require.NoError(t, err, "%q", id)
		bank.RequireSame(t, rec, stored)
	}
	moved := int64(len(bank.OddIDs()))
	for i := range int64(2) { // A repeated request moves nothing more.
		_, err := b.Transfer(ctx, bank.Move(bank.OddIDs()[i], "a", "b", 1))
		require.NoError(t, err)
	}
	require.Equal(t, bank.Balances(100-moved, moved), b.Balances())
	before := len(b.Raw("transfers"))
	for _, id := range []string{strings.Repeat("x", 256), strings.Repeat("ü", 128)} {
		_, err := b.Transfer(ctx, bank.Move(id, "a", "b", 1))
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		require.ErrorContains(t, err, "256 bytes")
	}
	require.Len(t, b.Raw("transfers"), before)
	b.CheckBooks(bank.Balances(100, 0))
}

// Transfers with any IDs have one marker each while they are in flight on one account,
// and recovery finishes them.
func TestRecoveryOfOddIDs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for _, id := range bank.OddIDs() {
		b.StallAt(id, bank.Settles, bank.Lost, 1)
	}
	moved := int64(len(bank.OddIDs()))
	for _, document := range b.Raw("accounts") {
		require.Len(t, document["pending"], len(bank.OddIDs()), "markers on account %s", document["_id"])
	}
	payee, err := b.GetAccount(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(moved), payee.Incoming)
	require.EqualValues(t, moved, b.RecoverAll().Succeeded)
	require.Equal(t, bank.Balances(100-moved, moved), b.Balances())
	b.CheckBooks(bank.Balances(100, 0))
}

// trouble is a change to account b behind the library's back.
type trouble struct {
	name       string
	begin, end func(b *bank.Bank)
	refusal    error // the refusal before the commit
	code       string
}

func troubles() []trouble {
	setBalance := func(value any) func(*bank.Bank) {
		return func(b *bank.Bank) {
			set := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: value}}}}
			_, err := b.DB.Collection("accounts").UpdateByID(b.T.Context(), "b", set)
			require.NoError(b.T, err)
		}
	}
	validate := func(validator bson.D) func(*bank.Bank) {
		return func(b *bank.Bank) {
			command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: validator}}
			require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
		}
	}
	return []trouble{
		{
			name: "the balance is a string", begin: setBalance("5"), end: setBalance(int64(5)),
			refusal: transfer.ErrAmountKind, code: "amountKind",
		},
		{
			name: "a validator refuses every write to the account", begin: validate(bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "b"}}}}),
			end: validate(bson.D{}), refusal: transfer.ErrUnwritable, code: "unwritable",
		},
	}
}

// A change that makes an account unfit before the commit is a refusal, and nothing moves.
func TestTroubleBeforeTheCommit(t *testing.T) {
	t.Parallel()
	for _, trouble := range troubles() {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 5)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			trouble.begin(b)
			rec, err := b.Transfer(ctx, bank.Move("t", "a", "b", 60))
			b.RequireRefused(rec, err, trouble.refusal, trouble.code)
			b.RequireBalance("a", 100)
			trouble.end(b)
			_, err = b.Transfer(ctx, bank.Move("u", "a", "b", 60))
			require.NoError(t, err)
			require.Equal(t, bank.Balances(40, 65), b.Balances())
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// A change that makes an account unfit after the commit takes nothing back and creates no
// money.
// Callers soon get an error which says so, and that the transfer is committed.
// Recovery finishes it once the account is repaired.
func TestTroubleAfterTheCommit(t *testing.T) {
	t.Parallel()
	for _, trouble := range troubles() {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 5)
			b.StallAt("t", bank.Settles, bank.Lost, 60)
			trouble.begin(b)
			c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // less than it takes until it counts as stalled
			defer cancel()
			for range 2 {
				report, err := c.Recover(ctx)
				require.NoError(t, err)
				require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
				b.RequireBalance("a", 40)
			}
			rec, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
			require.ErrorIs(t, err, transfer.ErrUnsettled)
			require.ErrorContains(t, err, `account "b"`)
			require.Equal(t, transfer.StateCommitted, rec.State)
			require.NoError(t, ctx.Err(), "it was told in time")
			_, err = b.Transfer(ctx, bank.Move("t", "a", "b", 60))
			require.ErrorIs(t, err, transfer.ErrUnsettled, "one who may not take it over yet doesn't wait for it")
			require.NoError(t, ctx.Err(), "it was told in time")
			_, err = b.Cancel(ctx, "t", "too late")
			require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
			b.RequireBalance("a", 40)

			trouble.end(b)
			b.RequireBalance("b", 5)
			require.Equal(t, 1, b.RecoverAll().Succeeded)
			require.Equal(t, bank.Balances(40, 65), b.Balances())
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}
