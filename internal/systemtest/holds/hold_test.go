package holds

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// accountFences returns the fences of the accounts.
func accountFences(b *bank.Bank) map[string]string {
	b.T.Helper()
	cursor, err := b.DB.Collection("accounts").Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	fences := map[string]string{}
	for cursor.Next(b.T.Context()) {
		fences[cursor.Current.Lookup("_id").StringValue()] = cursor.Current.Lookup("fence").String()
	}
	require.NoError(b.T, cursor.Err())
	return fences
}

// A hold takes the money off the payer.
// Nothing arrives before the hold is posted, and all of it arrives then.
func TestHoldThenPost(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	before := time.Now()
	held := b.MustHold("h", 60, time.Hour)
	require.WithinRange(t, held.ExpiresAt, before.Add(59*time.Minute), before.Add(61*time.Minute))
	b.RequireStanding("a", 40, 100, 0)
	b.RequireStanding("b", 5, 5, 60)

	fences := accountFences(b)
	posted, err := b.Post(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, posted.State)
	require.Equal(t, fences, accountFences(b), "a clean hold is posted without new fences")
	b.RequireStanding("a", 40, 40, 0)
	b.RequireStanding("b", 65, 65, 0)
	b.CheckBooks(bank.Balances(100, 5))
}

// Hold returns the record that is stored, with its times to the millisecond.
func TestRecordOfAHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for i, expiresIn := range []time.Duration{time.Hour + 999_999, time.Hour + 1, time.Hour} {
		id := fmt.Sprint("h", i)
		rec := b.MustHold(id, 10, expiresIn)
		require.Equal(t, rec.CreatedAt.Add(time.Hour), rec.ExpiresAt)
		stored, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, stored.ExpiresAt.UTC(), rec.ExpiresAt.UTC())
		require.Equal(t, stored.LastModified.UTC(), rec.LastModified.UTC())
		_, err = b.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A part of a hold can be posted.
// The rest goes back, and the record says what has moved.
func TestPostInPart(t *testing.T) {
	t.Parallel()
	for _, part := range []int64{1, 59, 60} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 5)
			b.MustHold("h", 60, time.Hour)
			rec, err := b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(part)))
			require.NoError(t, err)
			require.Equal(t, part, bank.Units(t, *rec.Posted))
			require.EqualValues(t, 60, bank.Units(t, rec.Legs[1].Amount), "what was held")
			b.RequireStanding("a", 100-part, 100-part, 0)
			b.RequireStanding("b", 5+part, 5+part, 0)

			again, err := b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(part)))
			require.NoError(t, err)
			require.Equal(t, rec.Posted, again.Posted)
			_, err = b.Post(t.Context(), "h", transfer.PostAmount(transfer.Units(2)))
			require.ErrorIs(t, err, transfer.ErrIDConflict)
			if part != 60 {
				_, err = b.Post(t.Context(), "h")
				require.ErrorIs(t, err, transfer.ErrIDConflict)
			}
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// An amount that can't be posted is refused, and the hold stays as it is.
func TestPostRefusesAmounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	b.MustHold("h", 60, time.Hour)
	half, err := transfer.ParseDecimal("0.5")
	require.NoError(t, err)
	for _, amount := range []transfer.Amount{transfer.Units(0), transfer.Units(-1), transfer.Units(61), half} {
		_, err := b.Post(t.Context(), "h", transfer.PostAmount(amount))
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, "%s", amount)
	}
	_, err = b.Post(t.Context(), "h", nil)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	split := transfer.Request{ID: "split", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-30)}, {Account: "b", Amount: transfer.Units(10)}, {Account: "c", Amount: transfer.Units(20)},
	}}
	_, err = b.Hold(t.Context(), split, time.Hour)
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "split", transfer.PostAmount(transfer.Units(10)))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.RequireStanding("a", 10, 100, 0)
	for _, id := range []string{"h", "split"} {
		_, err = b.Post(t.Context(), id)
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// A wrong amount is refused as such only while the hold is undecided.
// After that every caller gets the hold's outcome.
func TestPostOfAWrongAmountAfterTheDecision(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	committed := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit))
	half, err := transfer.ParseDecimal("0.5")
	require.NoError(t, err)
	for _, id := range []string{"posted", "posted in part", "committed", "voided", "expired", "undecided"} {
		b.MustHold(id, 60, time.Hour)
	}
	_, err = b.Post(t.Context(), "posted")
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "posted in part", transfer.PostAmount(transfer.Units(20)))
	require.NoError(t, err)
	b.Dying(bank.Settles, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error { // before it is settled
		_, err := c.Post(ctx, "committed")
		return err
	})
	_, err = b.Void(t.Context(), "voided")
	require.NoError(t, err)
	b.Expire("expired")
	for id, want := range map[string]error{
		"posted": transfer.ErrIDConflict, "posted in part": transfer.ErrIDConflict, "committed": transfer.ErrIDConflict,
		"voided": transfer.ErrCancelled, "expired": transfer.ErrExpired, "undecided": transfer.ErrInvalidRequest,
	} {
		for _, amount := range []transfer.Amount{transfer.Units(61), transfer.Units(0), half} {
			_, err := committed.Post(t.Context(), id, transfer.PostAmount(amount))
			require.ErrorIs(t, err, want, "%s, %s", id, amount)
			require.Equal(t, id == "undecided", errors.Is(err, transfer.ErrInvalidRequest), "%s, %s", id, amount)
		}
	}
	_, err = b.Void(t.Context(), "undecided")
	require.NoError(t, err)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// A voided hold gives everything back.
// Void may be repeated. A later Post comes too late.
func TestVoid(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	fences := accountFences(b)
	for range 2 {
		rec, err := b.Void(t.Context(), "h")
		require.NoError(t, err)
		require.Equal(t, transfer.StateFail, rec.State)
		require.Equal(t, "voided", rec.Failure.Code)
	}
	require.Equal(t, fences, accountFences(b), "a clean hold is voided without new fences")
	_, err := b.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrCancelled)
	_, err = b.Hold(t.Context(), bank.Move("h", "a", "b", 60), time.Hour)
	require.ErrorIs(t, err, transfer.ErrCancelled)
	_, err = b.Wait(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrCancelled)

	b.MustHold("posted", 60, time.Hour)
	_, err = b.Post(t.Context(), "posted")
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "posted")
	require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
	_, err = b.Cancel(t.Context(), "posted", "too late")
	require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
	b.CheckBooks(bank.Balances(100, 0))
}

// ending is one outcome of a hold of 60 from a, which had 100, to b, which had 5.
type ending struct {
	decide func(b *bank.Bank) (transfer.Record, error) // answers as every later call does
	err    error
	state  transfer.State
	a, b   int64 // available
}

func endings() map[string]ending {
	fails := func(err error, decide func(b *bank.Bank) (transfer.Record, error)) ending {
		return ending{decide, err, transfer.StateFail, 100, 5}
	}
	part := transfer.PostAmount(transfer.Units(20))
	return map[string]ending{
		"held": {func(b *bank.Bank) (transfer.Record, error) { return b.Get(b.T.Context(), "h") }, nil, transfer.StatePreparing, 40, 5},
		"posted": {func(b *bank.Bank) (transfer.Record, error) {
			return b.Post(b.T.Context(), "h")
		}, nil, transfer.StateSuccess, 40, 65},
		"posted in part": {func(b *bank.Bank) (transfer.Record, error) {
			return b.Post(b.T.Context(), "h", part)
		}, nil, transfer.StateSuccess, 80, 25},
		"posted, and not settled": {func(b *bank.Bank) (transfer.Record, error) {
			b.Dying(bank.Settles, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
				_, err := c.Post(ctx, "h", part)
				return err
			})
			return b.Get(b.T.Context(), "h")
		}, nil, transfer.StateCommitted, 40, 5},
		"voided": fails(transfer.ErrCancelled, func(b *bank.Bank) (transfer.Record, error) { return b.Void(b.T.Context(), "h") }),
		"cancelled": fails(transfer.ErrCancelled, func(b *bank.Bank) (transfer.Record, error) {
			return b.Cancel(b.T.Context(), "h", "changed my mind")
		}),
		"expired, and swept": fails(transfer.ErrExpired, func(b *bank.Bank) (transfer.Record, error) {
			b.Expire("h")
			b.RecoverAll()
			return b.Get(b.T.Context(), "h")
		}),
		"expired, seen by a Post": fails(transfer.ErrExpired, func(b *bank.Bank) (transfer.Record, error) {
			b.Expire("h")
			rec, err := b.Post(b.T.Context(), "h")
			require.ErrorIs(b.T, err, transfer.ErrExpired)
			return rec, nil
		}),
	}
}

// A repeated Hold has the hold's outcome, in any process and however often: held, posted
// in full or in part, or failed with its reason.
// It holds, pays and stores nothing more.
func TestHoldAskedAgain(t *testing.T) {
	t.Parallel()
	for name, row := range endings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := bank.New(t, 100, 5)
			b.MustHold("h", 60, time.Hour)
			first, err := row.decide(b)
			require.NoError(t, err)
			require.Equal(t, row.state, first.State)
			stored := b.Raw("transfers")
			for _, c := range []*transfer.Coordinator{b.Coordinator, b.NewCoordinator(b.DB), b.Coordinator} {
				rec, err := c.Hold(ctx, bank.Move("h", "a", "b", 60), 2*time.Hour)
				require.ErrorIs(t, err, row.err)
				require.Equal(t, row.err == nil, err == nil, "%v", err)
				require.Equal(t, asRead(first), asRead(rec))
				_, err = c.Hold(ctx, bank.Move("h", "a", "b", 59), time.Hour)
				require.ErrorIs(t, err, transfer.ErrIDConflict, "whatever has become of it")
			}
			require.Equal(t, stored, b.Raw("transfers"), "an answer changes nothing")
			for id, available := range map[string]int64{"a": row.a, "b": row.b} {
				account, err := b.GetAccount(ctx, id)
				require.NoError(t, err)
				require.Equal(t, available, bank.Units(t, account.Available), id)
			}
			b.ExpireAll()
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// asRead returns a record with its times in one zone.
func asRead(rec transfer.Record) transfer.Record {
	rec.CreatedAt, rec.LastModified, rec.ExpiresAt = rec.CreatedAt.UTC(), rec.LastModified.UTC(), rec.ExpiresAt.UTC()
	return rec
}

// Cancel voids a hold as well, with its reason.
func TestCancelHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	rec, err := b.Cancel(t.Context(), "h", "changed my mind")
	require.NoError(t, err)
	require.Equal(t, "cancelled", rec.Failure.Code)
	require.Equal(t, "changed my mind", rec.Failure.Message)
	_, err = b.Post(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrCancelled)
	b.CheckBooks(bank.Balances(100, 0))
}

// Only holds that are held can be posted or voided.
func TestOnlyHoldsArePosted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
	_, err = b.Hold(t.Context(), bank.Move("poor", "a", "b", 1000), time.Hour)
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.StallHold("stalled", bank.HeldMark) // before it is known to be held
	for id, want := range map[string]error{
		"t": transfer.ErrNotHeld, "poor": transfer.ErrNotHeld, "stalled": transfer.ErrNotHeld, "nothing": transfer.ErrTransferNotFound,
		"": transfer.ErrInvalidRequest,
	} {
		_, err := b.Post(t.Context(), id)
		require.ErrorIs(t, err, want, id)
	}
	for id, want := range map[string]error{"t": transfer.ErrNotHeld, "nothing": transfer.ErrTransferNotFound, "poor": nil, "stalled": nil} {
		_, err := b.Void(t.Context(), id)
		require.ErrorIs(t, err, want, id)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// The request of a hold is checked before anything is stored.
func TestHoldChecksItsRequest(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	req := bank.Move("h", "a", "b", 60)
	for _, expiresIn := range []time.Duration{0, -1, time.Microsecond, 1 << 62} {
		_, err := b.Hold(t.Context(), req, expiresIn)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, "%s", expiresIn)
	}
	req.NotBefore = time.Now()
	_, err := b.Hold(t.Context(), req, time.Hour)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	_, err = b.Get(t.Context(), "h")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	b.CheckBooks(bank.Balances(100, 0))
}

// A hold and a transfer with the same ID are different payloads.
func TestHoldIsNotTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	_, err := b.Transfer(t.Context(), bank.Move("h", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	b.MustHold("h", 60, 2*time.Hour) // a repeated Hold keeps the first expiry
	_, err = b.Hold(t.Context(), bank.AtMost("most", "a", "b", 1), time.Hour)
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.AtMost("most", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	_, err = b.Void(t.Context(), "most")
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// Only a part of a hold can be posted.
// A stored part that is not one is left alone, because it would create money: the debit
// stays in flight.
func TestPartThatIsNone(t *testing.T) {
	t.Parallel()
	for _, part := range []any{int64(60), int64(61), int64(0), int64(-1), bson.NewDecimal128(0x3040000000000000, 20)} {
		b := bank.New(t, 100, 0)
		b.MustHold("h", 60, time.Hour)
		b.Dying(bank.Claim, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error { // before it is settled
			_, err := c.Post(ctx, "h", transfer.PostAmount(transfer.Units(20)))
			return err
		})
		posted := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Committed"}, {Key: "posted", Value: part}}}}
		_, err := b.DB.Collection("transfers").UpdateByID(t.Context(), "h", posted)
		require.NoError(t, err)
		c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
		report, err := c.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, report.Stuck, "%v", part)
		b.RequireStanding("a", 40, 100, 0)
	}
}

// A hold lasts at least a millisecond and at most ten years.
func TestLengthOfAHold(t *testing.T) {
	t.Parallel()
	const longest = 10 * 366 * 24 * time.Hour
	b := bank.New(t, 100, 0)
	for i, expiresIn := range []time.Duration{time.Millisecond - 1, longest + 1} {
		_, err := b.Hold(t.Context(), bank.Move(fmt.Sprint("bad", i), "a", "b", 1), expiresIn)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	b.MustHold("long", 1, longest)
	_, err := b.Hold(t.Context(), bank.Move("short", "a", "b", 1), time.Millisecond)
	require.NotErrorIs(t, err, transfer.ErrInvalidRequest)
	b.ExpireAll()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A state that a later version has written is left alone by every verb.
func TestUnknownStateIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	_, err := b.DB.Collection("transfers").UpdateByID(t.Context(), "h", bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Frozen"}}}})
	require.NoError(t, err)
	for verb, err := range map[string]error{
		"post":   func() error { _, err := b.Post(t.Context(), "h"); return err }(),
		"void":   func() error { _, err := b.Void(t.Context(), "h"); return err }(),
		"cancel": func() error { _, err := b.Cancel(t.Context(), "h", ""); return err }(),
		"hold":   func() error { _, err := b.Hold(t.Context(), bank.Move("h", "a", "b", 60), time.Hour); return err }(),
	} {
		require.ErrorContains(t, err, "Frozen", verb)
	}
	b.RequireStanding("a", 40, 100, 0)
}

// If many callers post, void and let expire one hold at once, one of them decides.
// All of them get the hold's outcome.
func TestOneDecidesAHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	random := bank.Seeded(t)
	for round := range 20 {
		id := fmt.Sprint("h", round)
		b.MustHold(id, 30, time.Hour)
		late := random.IntN(2) == 0
		var (
			all    sync.WaitGroup
			mu     sync.Mutex
			posted = map[int64]int{}
			voided int
		)
		tell := func(part int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && part == 0:
				voided++
			case err == nil:
				posted[part]++
			default:
				known := errors.Is(err, transfer.ErrIDConflict) || errors.Is(err, transfer.ErrCancelled) ||
					errors.Is(err, transfer.ErrExpired) || errors.Is(err, transfer.ErrAlreadyCommitted)
				assert.True(t, known, "%v", err)
			}
		}
		for _, part := range []int64{10, 20, 30} {
			for range 2 {
				all.Go(func() {
					_, err := b.Post(t.Context(), id, transfer.PostAmount(transfer.Units(part)))
					tell(part, err)
				})
			}
		}
		all.Go(func() {
			_, err := b.Void(t.Context(), id)
			tell(0, err)
		})
		if late {
			all.Go(func() { b.Expire(id) })
		}
		all.Wait()
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		if rec.State == transfer.StateSuccess {
			require.Zero(t, voided, "%v", posted)
			require.Len(t, posted, 1)
			require.Contains(t, posted, bank.Units(t, *rec.Posted))
		} else {
			require.Equal(t, transfer.StateFail, rec.State)
			require.Empty(t, posted)
			require.Equal(t, 1, voided)
		}
	}
	b.CheckBooks(bank.Balances(1000, 0))
}
