package verbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A reversal moves all the money back, names the original, and is named by it.
// A repeated reversal is the same transfer.
func TestReverse(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	split := transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)}, {Account: "b", Amount: transfer.Units(50)}, {Account: "c", Amount: transfer.Units(10)},
	}}
	_, err := b.Transfer(t.Context(), split)
	require.NoError(t, err)
	for range 2 {
		rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
		require.Equal(t, "t", rec.Reverses)
	}
	original, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, "r", original.ReversedBy)
	b.RequireStanding("a", 100, 100, 0)

	rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "another", Of: "t", All: true})
	require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
	require.Equal(t, "r", rec.ReversedBy)
	_, err = b.Get(t.Context(), "another")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)

	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "there again", Of: "r", All: true}) // a reversal is a transfer like any other
	require.NoError(t, err)
	b.RequireStanding("a", 40, 40, 0)
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// The reversed transfer is payload: one ID can't reverse two transfers, even if they are
// otherwise alike.
func TestReversalsOfTwoAreTwo(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for _, id := range []string{"one", "other"} {
		_, err := b.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
	}
	_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "one", All: true})
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "other", All: true})
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	_, err = b.Transfer(t.Context(), bank.Move("r", "b", "a", 10))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	b.CheckBooks(bank.Balances(100, 0))
}

// The reversal of a hold moves back what was posted.
func TestReverseOfHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "h", All: true})
	require.ErrorIs(t, err, transfer.ErrNotReversible)
	_, err = b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(25)))
	require.NoError(t, err)
	rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "h", All: true})
	require.NoError(t, err)
	require.EqualValues(t, 25, bank.Units(t, rec.Legs[0].Amount))
	b.RequireStanding("a", 100, 100, 0)
	b.CheckBooks(bank.Balances(100, 0))
}

// What another process has answered at its commit can be reversed, although that is not
// stored yet.
func TestReverseAtOnceElsewhere(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit))
	for i := range 20 {
		id := fmt.Sprint("t", i)
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 60))
		require.NoError(t, err)
		_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "reversal of " + id, Of: id, All: true})
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Only a success can be reversed, and only if it exists.
// A reversal needs an ID of its own.
func TestNotReversible(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("refused", "a", "b", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.MustMove("done", 10)
	for id, want := range map[string]error{
		"refused": transfer.ErrNotReversible, "nothing": transfer.ErrTransferNotFound,
		"": transfer.ErrInvalidRequest, "r": transfer.ErrInvalidRequest,
	} {
		_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: id, All: true})
		require.ErrorIs(t, err, want, id)
	}
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "", Of: "refused", All: true})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "refused", Of: "done", All: true})
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	b.CheckBooks(bank.Balances(100, 0))
}

// A reversal with metadata that can't be stored is refused under its own ID, also where
// its original is gone.
func TestReversalWithBadMetadata(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("done", 10)
	r := transfer.Reversal{ID: "r", Of: "done", All: true}
	_, err := b.Reverse(t.Context(), r)
	require.NoError(t, err)
	r.Metadata = map[string]any{"$x": "sesame"}
	for range 2 {
		_, err := b.Reverse(t.Context(), r)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		require.ErrorContains(t, err, `transfer "r": `)
		require.ErrorContains(t, err, `the metadata key "$x"`)
		require.NotContains(t, err.Error(), "done")
		b.Remove("transfers", "done")
	}
	b.Remove("transfers", "r") // as a retention would
	require.Equal(t, bank.Balances(100, 0), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}

// A reversal goes on with an original that is committed and has stalled.
// It waits for one that has not, as long as its context lets it, and does not wait for
// one that is stuck.
func TestReversalOfWhatHasStalled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	b.StallAt("stalled", bank.Settles, bank.Lost, 10)
	long, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := b.Reverse(long, part("r", "stalled", 4))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, transfer.ErrNotReversible)
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	_, err = c.Reverse(t.Context(), part("r", "stalled", 4))
	require.NoError(t, err)

	b.StallRequest(bank.Move("stuck", "a", "c", 10), bank.Settles, bank.Lost)
	account := b.Raw("accounts")
	b.Remove("accounts", "c")
	_, err = c.Recover(t.Context())
	require.NoError(t, err)
	rec, err := b.Reverse(t.Context(), part("r2", "stuck", 4))
	require.ErrorIs(t, err, transfer.ErrNotReversible)
	require.ErrorContains(t, err, "stuck: repair what its record names")
	require.NotNil(t, rec.Stuck)
	for _, a := range account {
		if a["_id"] == "c" {
			b.Insert("accounts", a)
		}
	}
	b.RecoverAll()
	_, err = b.Reverse(t.Context(), part("r2", "stuck", 4))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// A repeated reversal has its outcome as long as that is stored, even if the original,
// which is older, was purged first.
// A transfer that reverses another original, or nothing, is not that reversal.
func TestReverseAgainAfterTheOriginalWasPurged(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(time.Hour)}, 100, 0)
	for _, id := range []string{"done", "refused", "stalled"} {
		b.MustMove(id, 10)
	}
	_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r-done", Of: "done", All: true})
	require.NoError(t, err)
	dyingReversal(b, bank.Settles, rest("r-stalled", "stalled"))
	b.SetField("accounts", "b", "balance", int64(0))
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r-refused", Of: "refused", All: true})
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	for _, id := range []string{"done", "refused", "stalled"} {
		b.Remove("transfers", id) // as the server does
	}
	rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r-done", Of: "done", All: true})
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.Equal(t, "done", rec.Reverses)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r-refused", Of: "refused", All: true})
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	rec, err = b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)).Reverse(t.Context(), rest("r-stalled", "stalled"))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	for _, id := range []string{"r-stalled", "new"} {
		_, err = b.Reverse(t.Context(), transfer.Reversal{ID: id, Of: "done", All: true})
		require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	}
	_, err = b.Get(t.Context(), "new")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	require.Equal(t, bank.Balances(90, 0), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}

// A transfer that is reported at its commit can be reversed at once.
func TestReversalOfWhatIsCommitted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	other := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	w := &bank.Wire{At: 2, OnStrike: func() { // the second look
		_, err := other.Recover(t.Context())
		assert.NoError(t, err)
	}}
	rec, err := b.NewCoordinator(b.Through(w.Client()), transfer.WithReturnAt(transfer.AtCommit)).Reverse(t.Context(), rest("r", "t"))
	require.NoError(t, err)
	require.True(t, w.HasStruck())
	require.Contains(t, []transfer.State{transfer.StateCommitted, transfer.StateSuccess}, rec.State)
	_, err = b.Wait(t.Context(), "r")
	require.NoError(t, err)
	b.RequireStanding("a", 100, 100, 0)
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer is not reversed if it was changed by hand, or touches a collection that is
// not registered here.
func TestReversalOfWhatIsNotSound(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	far := b.NewCoordinator(b.DB, bank.Mirror(b.DB)...)
	rec, err := bank.ThroughMirror(t.Context(), far)
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: rec.ID, All: true})
	require.ErrorContains(t, err, "mirror")
	_, err = b.Transfer(t.Context(), bank.Move("changed", "a", "b", 20))
	require.NoError(t, err)
	more := bson.D{{Key: "$set", Value: bson.D{{Key: "legs.0.amount", Value: int64(-90)}}}}
	_, err = b.DB.Collection("transfers").UpdateByID(t.Context(), "changed", more)
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r", Of: "changed", All: true})
	require.ErrorContains(t, err, "digest")
	_, err = b.Get(t.Context(), "r")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	require.Equal(t, bank.Balances(20, 60), b.Balances())
}

// A reversal that waits for another one ends when its coordinator is closed.
func TestReverseEndsWithClose(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 60)
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	dyingReversal(b, bank.Decision, rest("r", "t"))
	var commands atomic.Int64
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(&event.CommandMonitor{
		Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) },
	})))
	told := make(chan error, 1)
	go func() {
		_, err := c.Reverse(t.Context(), rest("other", "t"))
		told <- err
	}()
	require.Eventually(t, func() bool { return commands.Load() > 100 }, 5*time.Minute, time.Millisecond, "it asks and asks")
	require.NoError(t, c.Close(t.Context()))
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	select {
	case err := <-told:
		require.ErrorIs(t, err, transfer.ErrClosed)
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	case <-soon.Done():
		require.Fail(t, "it still waits")
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 60))
}

// A refused reversal frees the original, which can then be reversed under a new ID.
func TestRefusedReversalFreesTheOriginal(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	for _, req := range []transfer.Request{bank.Move("t", "a", "b", 60), bank.Move("spent", "b", "c", 30)} {
		_, err := b.Transfer(t.Context(), req)
		require.NoError(t, err)
	}
	for range 2 {
		_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "r1", Of: "t", All: true})
		require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	}
	_, err := b.Transfer(t.Context(), bank.Move("earned", "c", "b", 30))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r2", Of: "t", All: true})
	require.NoError(t, err)
	for id, want := range map[string]error{"r1": transfer.ErrInsufficientFunds, "r2": nil, "r3": transfer.ErrAlreadyReversed} {
		_, err := b.Reverse(t.Context(), transfer.Reversal{ID: id, Of: "t", All: true})
		require.ErrorIs(t, err, want, "what was told of an ID stays so")
	}
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// If many callers reverse a transfer at once, under different IDs and in several
// processes, one succeeds.
// The others are refused as already reversed, even if the payee has only enough for one.
func TestOneReversalWins(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	processes := b.Processes(4)
	for round := range 10 {
		id := fmt.Sprint("t", round)
		_, err := b.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
		var (
			all  sync.WaitGroup
			mu   sync.Mutex
			won  []string
			lost = map[string]error{}
		)
		for i := range 8 {
			all.Go(func() {
				newID := fmt.Sprint("r", round, "-", i)
				_, err := processes[i%len(processes)].Reverse(t.Context(), rest(newID, id))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, newID)
				} else {
					lost[newID] = err
				}
			})
		}
		all.Wait()
		require.Len(t, won, 1)
		for newID, err := range lost {
			require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
			outcome := transfer.Unchanged
			if b.RawTransfer(newID).Found { // it was stored before it came too late, so its ID stays failed
				outcome = transfer.Failed
			}
			require.Equal(t, outcome, transfer.OutcomeOf(err), "%v", err)
		}
		original, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, won[0], original.ReversedBy)
	}
	b.CheckBooks(bank.Balances(1000, 0))
}

// A reversal whose process has died is recovered.
func TestReversalIsRecovered(t *testing.T) {
	t.Parallel()
	for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
		b := bank.New(t, 100, 60)
		_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
		require.NoError(t, err)
		dyingReversal(b, bank.Decision, rest("r", "t"))
		b.RecoverAll(transfer.WithStallPolicy(policy))
		rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "again", Of: "t", All: true})
		if policy == transfer.Resume {
			require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
			require.Equal(t, "r", rec.ReversedBy)
		} else {
			require.NoError(t, err)
		}
		b.RequireStanding("a", 100, 100, 0)
		b.CheckBooks(bank.Balances(100, 60))
	}
}

// A reversal in progress succeeds even if the original is purged meanwhile.
// The money is owed. The note on the original is not.
func TestReversalOutlivesTheOriginal(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	dyingReversal(b, bank.Settles, rest("r", "t"))
	b.Remove("transfers", "t")
	b.RecoverAll()
	rec, err := b.Get(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	b.RequireStanding("a", 100, 100, 0)
}
