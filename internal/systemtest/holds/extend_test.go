package holds

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A hold that is extended expires so long after the call, in any process and however
// often, and is what it was: the money is held, and a Post needs no new fences.
func TestExtend(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	held := b.MustHold("h", 60, time.Hour)
	fences := accountFences(b)
	for i, c := range []*transfer.Coordinator{b.Coordinator, b.NewCoordinator(b.DB), b.Coordinator} {
		expiresIn := time.Duration(2+i) * time.Hour
		before := time.Now()
		rec, err := c.Extend(t.Context(), "h", expiresIn)
		require.NoError(t, err)
		const around = time.Minute // between the clocks
		require.WithinRange(t, rec.ExpiresAt, before.Add(expiresIn-around), time.Now().Add(expiresIn+around))
		require.True(t, rec.Held)
		require.Equal(t, held.Epoch+int64(i)+1, rec.Epoch)
		stored, err := b.Get(t.Context(), "h")
		require.NoError(t, err)
		require.Equal(t, stored, rec)
		require.Equal(t, held.CreatedAt.UTC(), rec.CreatedAt.UTC())
	}
	b.RequireStanding("a", 40, 100, 0)
	b.RequireStanding("b", 5, 5, 60)
	report, err := b.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report)
	require.Empty(t, b.MustAudit().Findings)

	_, err = b.Post(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, fences, accountFences(b), "an extended hold is as clean as before")
	b.CheckBooks(bank.Balances(100, 5))
}

// A hold never expires earlier than an earlier call has made it: it stays as it is.
func TestExtendShortensNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, 2*time.Hour)
	before := b.Contents()
	for _, expiresIn := range []time.Duration{time.Millisecond, time.Hour} {
		rec, err := b.Extend(t.Context(), "h", expiresIn)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
		require.True(t, rec.Held)
	}
	require.Equal(t, before, b.Contents())
	_, err := b.Extend(t.Context(), "h", 2*time.Hour)
	require.NoError(t, err, "some time has passed")
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// Extend of a hold that is decided, or about to be, says what has become of it, and
// changes nothing.
func TestExtendTooLate(t *testing.T) {
	t.Parallel()
	want := map[string]error{
		"posted": transfer.ErrAlreadyCommitted, "posted in part": transfer.ErrAlreadyCommitted,
		"posted, and not settled": transfer.ErrAlreadyCommitted, "voided": transfer.ErrNotHeld, "cancelled": transfer.ErrNotHeld,
		"expired, and swept": transfer.ErrExpired, "expired, seen by a Post": transfer.ErrExpired,
	}
	rows := endings()
	delete(rows, "held")
	require.Len(t, rows, len(want))
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, want, name)
			b := bank.New(t, 100, 5)
			b.MustHold("h", 60, time.Hour)
			_, err := row.decide(b)
			require.NoError(t, err)
			stored := b.Raw("transfers")
			for _, c := range []*transfer.Coordinator{b.Coordinator, b.NewCoordinator(b.DB)} {
				rec, err := c.Extend(t.Context(), "h", 2*time.Hour)
				require.ErrorIs(t, err, want[name])
				require.NotErrorIs(t, err, transfer.ErrCancelled)
				require.Equal(t, row.state, rec.State)
				require.False(t, rec.Held)
			}
			require.Equal(t, stored, b.Raw("transfers"), "an answer changes nothing")
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// An expired hold that nobody has voided yet can't be extended any more: Extend voids it.
func TestExtendVoidsWhatHasExpired(t *testing.T) {
	t.Parallel()
	for _, stalled := range []bool{false, true} {
		b := bank.New(t, 100, 0)
		if stalled {
			b.StallHold("h", bank.HeldMark)
		} else {
			b.MustHold("h", 60, time.Hour)
		}
		b.Expire("h")
		rec, err := b.Extend(t.Context(), "h", time.Hour)
		require.ErrorIs(t, err, transfer.ErrExpired)
		require.Equal(t, transfer.StateFail, rec.State)
		require.Equal(t, "expired", rec.Failure.Code)
		b.RequireStanding("a", 100, 100, 0)
		b.CheckBooks(bank.Balances(100, 0))
	}
}

// Only a hold that is held can be extended.
func TestOnlyHoldsAreExtended(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 1)
	_, err := b.Hold(t.Context(), bank.Move("poor", "a", "b", 1000), time.Hour)
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.StallHold("stalled", bank.HeldMark) // before it is known to be held
	before := b.Raw("transfers")
	for id, want := range map[string]error{
		"t": transfer.ErrNotHeld, "poor": transfer.ErrNotHeld, "stalled": transfer.ErrNotHeld, "nothing": transfer.ErrTransferNotFound,
	} {
		_, err := b.Extend(t.Context(), id, 2*time.Hour)
		require.ErrorIs(t, err, want, id)
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err), id)
	}
	require.Equal(t, before, b.Raw("transfers"))
	_, err = b.Void(t.Context(), "stalled")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// An extension whose answer is lost is in doubt when its process dies, and may be asked
// for again.
func TestExtendInDoubt(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	b.Dying(bank.Claim, bank.AnswerLost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Extend(ctx, "h", 2*time.Hour)
		require.ErrorIs(t, err, transfer.ErrInDoubt)
		return err
	})
	lost, err := b.Get(t.Context(), "h")
	require.NoError(t, err)
	require.Greater(t, time.Until(lost.ExpiresAt), 90*time.Minute, "it is stored")
	again, err := b.Extend(t.Context(), "h", 2*time.Hour)
	require.NoError(t, err)
	require.False(t, again.ExpiresAt.Before(lost.ExpiresAt))
	_, err = b.Post(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// A hold that is not what was asked for any more is left alone: somebody has changed it.
func TestExtendLeavesAloneWhatWasChanged(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	b.Change("transfers", "h", bson.M{"$set": bson.M{"currency": "EUR"}})
	before := b.Raw("transfers")
	_, err := b.Extend(t.Context(), "h", 2*time.Hour)
	require.ErrorContains(t, err, "digest")
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
	require.Equal(t, before, b.Raw("transfers"))
	b.Change("transfers", "h", bson.M{"$unset": bson.M{"currency": ""}})
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}
