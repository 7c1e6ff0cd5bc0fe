package processes

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// requireAlone requires that nobody has taken a transfer over.
func requireAlone(t *testing.T, rec transfer.Record, err error) {
	t.Helper()
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Epoch, "it was taken over from a process that lives")
	require.Zero(t, rec.Attempts)
}

// startSet starts a replica set of one member, which can be paused.
func startSet(t *testing.T) *mongotest.Set {
	t.Helper()
	set, err := mongotest.StartSet(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	return set
}

// pause pauses a set for a while.
func pause(set *mongotest.Set, span time.Duration) error {
	if err := set.Pause(0); err != nil {
		return err
	}
	timer := time.NewTimer(span)
	<-timer.C
	return set.Resume(0)
}

// other registers a ledger on the set, through a client of its own.
func other(b *bank.Bank, set *mongotest.Set) transfer.Option {
	b.T.Helper()
	return transfer.WithLedger("other", bank.Client(b.T, set.URI()).Database(b.DB.Name()).Collection("accounts"))
}

// across returns a process that has moved 1 from account a to the ledger other.
// From now on it claims before it asks that one's server.
func across(b *bank.Bank, set *mongotest.Set) *transfer.Coordinator {
	b.T.Helper()
	c := b.NewCoordinator(b.DB, other(b, set))
	require.NoError(b.T, c.Setup(b.T.Context()))
	ledger, err := c.Ledger("other")
	require.NoError(b.T, err)
	_, err = ledger.Open(b.T.Context(), transfer.Account{ID: "a"})
	require.NoError(b.T, err)
	_, err = c.Transfer(b.T.Context(), bank.Across("warm", 1))
	require.NoError(b.T, err)
	return c
}

// A process that lives is left alone, however long its transfer takes, and whether it
// calls Run or not.
// What was submitted for the worker goes on meanwhile.
func TestLivingIsLeftAlone(t *testing.T) {
	t.Parallel()
	b, set := bank.New(t, 100, 0).WithIndexes(), startSet(t)
	c := across(b, set)
	workers := b.NewCoordinator(b.DB, other(b, set), byNotesAlone())
	require.NoError(t, workers.Check(t.Context()))
	end := bank.InBackground(t, workers)

	require.NoError(t, set.Pause(0))
	type answer struct {
		rec transfer.Record
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		rec, err := c.Transfer(t.Context(), bank.Across("slow", 60))
		answered <- answer{rec, err}
	}()
	awaitUnfinished(b, 1, time.Millisecond)
	b.MustSubmit("seen")
	_, err := b.Wait(t.Context(), "seen")
	require.NoError(t, err)
	span := time.NewTimer(2 * soon)
	<-span.C
	require.NoError(t, set.Resume(0))
	got := bank.Within(t, answered)
	requireAlone(t, got.rec, got.err)
	end()
	bank.RequireLedgers(t, c, map[string]int64{"": 38, "other": 61})
}

// Where the servers were away from everybody, nobody is thought dead because of it.
func TestOutageKillsNobody(t *testing.T) {
	t.Parallel()
	b := bank.NewReplicated(t, startSet(t), "outage")
	b.OpenAccounts([]int64{100, 0})
	end := bank.InBackground(t, b.NewCoordinator(b.DB, byNotesAlone()))
	w := &bank.Wire{Is: bank.Prepares.Selector(), What: bank.Lost}
	paused := make(chan error, 1)
	w.OnStrike = func() {
		go func() { paused <- pause(b.Set, soon) }()
	}
	rec, err := b.NewCoordinator(b.Through(w.Client())).Transfer(t.Context(), bank.Move("slow", "a", "b", 60))
	require.True(t, w.HasStruck(), "%v", err)
	require.NoError(t, bank.Within(t, paused))
	requireAlone(t, rec, err)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// A process that has given no note, such as one of an older release, is judged by the
// stall threshold alone.
func TestProcessWithoutNotes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bank.Bank){
		"an older release": func(b *bank.Bank) {
			owner := bson.D{{Key: "$set", Value: bson.D{{Key: "owner", Value: "mover-ABCDEFGHIJKLMNOP"}}}}
			_, err := b.DB.Collection("transfers").UpdateMany(b.T.Context(), bson.D{{Key: "open", Value: true}}, owner)
			require.NoError(b.T, err)
		},
		"no note": func(b *bank.Bank) {
			_, err := b.DB.Collection("transfers.processes").DeleteMany(b.T.Context(), bson.D{})
			require.NoError(b.T, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := left(t)
			change(b)
			n := unfinished(b)
			end := bank.InBackground(t, b.NewCoordinator(b.DB, byNotesAlone()))
			b.MustSubmit("seen") // the worker works
			_, err := b.Wait(t.Context(), "seen")
			require.NoError(t, err)
			span := time.NewTimer(2 * soon)
			<-span.C
			require.Equal(t, n, unfinished(b))
			end()
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100_000, 100_000))
		})
	}
}

// A process that is frozen is thought dead, and its transfers are taken over.
// It goes on later where it was: that costs work, and no money.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100_000, 100_000).WithIndexes()
	worker := start(b, "worker", works)
	mover := start(b, "mover", moves)
	awaitMoves(b, 300)
	taken := false
	for round := 0; !taken; round++ {
		require.Less(t, round, 10)
		mover.Signal(syscall.SIGSTOP)
		finished(b)
		taken = takenOver(b) > 0
		mover.Signal(syscall.SIGCONT)
		done, err := b.Count(t.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}})
		require.NoError(t, err)
		awaitMoves(b, done+300)
	}
	mover.End()
	finished(b)
	worker.End()
	b.CheckBooks(bank.Balances(100_000, 100_000))
	report := b.MustAudit()
	require.Empty(t, report.Findings)
}

// takenOver returns how many transfers were taken over.
func takenOver(b *bank.Bank) int64 {
	b.T.Helper()
	n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), bson.D{{Key: "attempts", Value: bson.D{{Key: "$gt", Value: 0}}}})
	require.NoError(b.T, err)
	return n
}

// owned selects the transfers that a process of a name has claimed.
func owned(name string) bson.D {
	return bson.D{{Key: "owner", Value: bson.D{{Key: "$gte", Value: name + "-"}, {Key: "$lt", Value: name + "."}}}}
}

// A chain of deaths: who takes over dies as well, and is noticed as well.
func TestWhoTakesOverDies(t *testing.T) {
	t.Parallel()
	b := left(t)
	for round := range 2 {
		name := fmt.Sprint("worker", round)
		worker := start(b, name, works)
		bank.Until(t, time.Millisecond, func() (bool, error) {
			n, err := b.DB.Collection("transfers").CountDocuments(t.Context(), owned(name))
			return n > 0, err
		})
		worker.Kill()
	}
	end := bank.InBackground(t, b.NewCoordinator(b.DB, byNotesAlone()))
	finished(b)
	end()
	b.CheckBooks(bank.Balances(100_000, 100_000))
}
