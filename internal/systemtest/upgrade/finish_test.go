package upgrade

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Whatever an earlier release has left, in each of its states, is brought to its end by
// this one, and each balance is what the transfers say.
func TestWhatAnEarlierReleaseLeftIsFinished(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	require.NoError(t, b.Setup(t.Context()))
	c := b.NewRecoverer(rooms(b.DB)...)
	_, err := c.Recover(t.Context())
	require.NoError(t, err)
	runSubmitted(b, c, "submitted", "scheduled")
	_, err = c.Cancel(t.Context(), "far-off", "nobody wants it")
	require.NoError(t, err)
	decideHolds(b, c)
	b.RecoverBy(c)

	failed := []string{"hold-expired", "hold-2", "hold-3", "hold-void", "voided-", "refused-", "withdrawn-", "far-off",
		"cancelled-2", "cancelled-3", "cancelled-4", "cancelled-5"}
	for rec, err := range c.List(t.Context(), transfer.Query{}) {
		require.NoError(t, err)
		want := transfer.StateSuccess
		for _, prefix := range failed {
			if strings.HasPrefix(rec.ID, prefix) {
				want = transfer.StateFail
			}
		}
		require.Equal(t, want, rec.State, rec.ID)
		require.Zero(t, subtype(b, rec.ID), rec.ID)
	}
	b.CheckBooks(bank.Balances(5000, 1000, 0))
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		b.RequireOrder("o-paid-"+id, "paid", false)
	}
}

// runSubmitted runs a worker until transfers are final.
func runSubmitted(b *bank.Bank, c *transfer.Coordinator, ids ...string) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(b.T.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for _, id := range ids {
		rec, err := c.Wait(b.T.Context(), id)
		require.NoError(b.T, err)
		require.Equal(b.T, transfer.StateSuccess, rec.State)
	}
	cancel()
	require.NoError(b.T, bank.Within(b.T, done))
}

// decideHolds posts and voids what is held.
func decideHolds(b *bank.Bank, c *transfer.Coordinator) {
	b.T.Helper()
	ctx := b.T.Context()
	for _, id := range []string{"hold-1", "hold-2"} { // the process died before they were held
		rec, err := c.Hold(ctx, bank.Move(id, "a", "b", 60), time.Hour)
		require.NoError(b.T, err)
		require.Equal(b.T, transfer.StatePreparing, rec.State)
	}
	for _, id := range []string{"hold-1", "hold-dirty", "hold-clean", "posted-whole-0"} {
		_, err := c.Post(ctx, id)
		require.NoError(b.T, err)
	}
	rec, err := c.Post(ctx, "posted-part-0", transfer.PostAmount(transfer.Units(25)))
	require.NoError(b.T, err)
	require.EqualValues(b.T, 25, bank.Units(b.T, *rec.Posted))
	for _, id := range []string{"hold-2", "hold-3", "hold-void", "voided-0", "voided-1"} {
		_, err := c.Void(ctx, id)
		require.NoError(b.T, err)
	}
}

// A transfer that an earlier release has stored is asked for again: the answer is the
// same as before, and another payload is another one.
func TestAskedForAgainAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	require.NoError(t, b.Setup(t.Context()))
	c := b.NewRecoverer(rooms(b.DB)...)
	before := b.Raw("accounts")
	moved := transfer.Request{ID: "plain-7", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)}, {Account: "b", Amount: transfer.Units(40)},
		{Ledger: "mirror", Account: "m", Amount: transfer.Units(20)},
	}}
	rec, err := c.Transfer(t.Context(), moved)
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	rec, err = c.Transfer(t.Context(), bank.Payment("paid-7", "o-paid-7", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	rec, err = c.Transfer(t.Context(), bank.AtMost("most-5", "c", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	rec, err = c.Reverse(t.Context(), transfer.Reversal{ID: "reversal-7", Of: "of-reversal-7", All: true})
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	rec, err = c.Hold(t.Context(), bank.Move("hold-clean", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, rec.State)
	rec, err = c.Submit(t.Context(), bank.Move("submitted", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateInitiated, rec.State)

	for _, id := range []string{"plain-7", "paid-7", "hold-clean", "submitted"} {
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 61))
		require.ErrorIs(t, err, transfer.ErrIDConflict, id)
	}
	require.Equal(t, before, b.Raw("accounts"))
}

// A transfer that an earlier release has stored is never committed by fact: a process of
// that release may be working on it, too, and rolls it back without a fence first.
// So this release leaves no done mark of it, wherever its process dies.
func TestNothingEarlierIsCommittedByFact(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	committed := false
	for n := 0; ; n++ {
		require.Less(t, n, 100, "it never ends")
		require.NoError(t, b.Setup(t.Context()))
		w := &bank.Wire{At: n, What: bank.Lost, Die: true, Of: bank.Writes, Idle: true}
		db := b.Through(w.Client())
		c := b.NewCoordinator(db, append(rooms(db), transfer.WithStallThreshold(0))...)
		require.NoError(t, c.Check(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		w.OnDeath = cancel
		w.SetIdle(false)
		_, _ = c.Recover(ctx) // it dies
		cancel()
		bank.Kill(c)
		for _, collection := range []string{"accounts", "mirror", "orders"} {
			requireNoDoneMark(b, collection)
		}
		committed = committed || b.RawTransfer("plain-3").State == "Committed"
		if !w.HasStruck() {
			break
		}
		b.Wipe(rooms(b.DB)...)
		restore(b)
	}
	require.True(t, committed, "no process has died after a commit")
	require.Equal(t, "Success", b.RawTransfer("plain-3").State)
}

// requireNoDoneMark requires that no document of a collection has a done mark.
func requireNoDoneMark(b *bank.Bank, collection string) {
	b.T.Helper()
	for _, document := range b.Raw(collection) {
		pending, _ := document["pending"].(bson.D)
		for _, mark := range pending {
			require.False(b.T, strings.HasSuffix(mark.Key, "%"), "%s %v: %s", collection, document["_id"], mark.Key)
		}
	}
}
