package verbs

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The transfer moves the money that is there, up to the requested amount, above the
// floor, for each kind of amount.
func TestAtMost(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for _, a := range []transfer.Account{
		{ID: "floored", Balance: transfer.Units(30), Floor: transfer.Units(10)},
		{ID: "overdrawn", Balance: transfer.Units(30), Floor: transfer.Units(-10)},
		{ID: "world", NoFloor: true},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
	}
	for from, want := range map[string]int64{"a": 80, "floored": 20, "overdrawn": 40, "world": 80} {
		rec, err := b.Transfer(t.Context(), bank.AtMost("of "+from, from, "b", 80))
		require.NoError(t, err)
		require.Equal(t, want, bank.Units(t, rec.Legs[1].Amount), from)
	}
	rec, err := b.Transfer(t.Context(), bank.AtMost("the rest", "a", "b", 80))
	require.NoError(t, err)
	require.EqualValues(t, 20, bank.Units(t, rec.Legs[1].Amount))
	b.RequireStanding("b", 240, 240, 0)
}

// If there is nothing to move, or no account to pay it, the transfer is refused as one of
// the whole amount would be.
func TestAtMostOfNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0)
	b.Insert("accounts", bson.D{{Key: "_id", Value: "odd"}, {Key: "balance", Value: "80"}},
		bson.D{{Key: "_id", Value: "poor"}, {Key: "balance", Value: int64(5)}, {Key: "floor", Value: int64(7)}})
	for from, want := range map[string]error{
		"a": transfer.ErrInsufficientFunds, "poor": transfer.ErrInsufficientFunds,
		"nobody": transfer.ErrAccountNotFound, "odd": transfer.ErrAmountKind,
	} {
		rec, err := b.Transfer(t.Context(), bank.AtMost("of "+from, from, "b", 80))
		require.ErrorIs(t, err, want)
		require.EqualValues(t, 80, bank.Units(t, rec.Legs[1].Amount))
	}
	b.Remove("accounts", "odd", "poor")
	b.CheckBooks(bank.Balances(0, 0))
}

// A floor with too many digits leaves more than can be moved exactly.
// Nothing is rounded, and nothing moves.
func TestAtMostAboveAnOddFloor(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		require.NoError(t, err)
		return d
	}
	b.Insert("accounts",
		bson.D{{Key: "_id", Value: "x"}, {Key: "balance", Value: decimal("10")}, {Key: "floor", Value: decimal("0.0000000000001")}},
		bson.D{{Key: "_id", Value: "y"}, {Key: "balance", Value: decimal("1")}})
	amount, err := transfer.ParseDecimal("100")
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "t", From: "x", To: "y", Amount: amount, AtMost: true})
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	y, err := b.GetAccount(t.Context(), "y")
	require.NoError(t, err)
	require.Equal(t, "1", y.Balance.String())
}

// A repeated request is the same transfer, whatever the account has by then.
// The requested amount is payload, and the moved amount is not.
func TestAtMostIsIdempotent(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 50, 100)
	for range 2 {
		rec, err := b.Transfer(t.Context(), bank.AtMost("t", "a", "b", 80))
		require.NoError(t, err)
		require.EqualValues(t, 50, bank.Units(t, rec.Legs[1].Amount))
		_, err = b.Transfer(t.Context(), bank.Move("back", "b", "a", 70))
		require.NoError(t, err)
	}
	for _, other := range []transfer.Request{bank.Move("t", "a", "b", 80), bank.Move("t", "a", "b", 50), bank.AtMost("t", "a", "b", 50)} {
		_, err := b.Transfer(t.Context(), other)
		require.ErrorIs(t, err, transfer.ErrIDConflict)
	}
	legs := transfer.Request{ID: "legs", AtMost: true, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Account: "b", Amount: transfer.Units(1)},
	}}
	_, err := b.Transfer(t.Context(), legs)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances(50, 100))
}

// If many transfers empty an account at once, no unit moves twice, and the late ones are
// refused.
func TestManyTakeWhatIsThere(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, err := b.Transfer(t.Context(), bank.AtMost(fmt.Sprint("t", i), "a", "b", 30))
			assert.True(t, err == nil || errors.Is(err, transfer.ErrInsufficientFunds), "%v", err)
		})
	}
	all.Wait()
	b.CheckBooks(bank.Balances(100, 0))
}

// A hold and a submitted transfer fix their amount when they are requested.
func TestAtMostOfOthers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 50, 0)
	rec, err := b.Hold(t.Context(), bank.AtMost("h", "a", "b", 80), time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 50, bank.Units(t, rec.Legs[1].Amount))
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	rec, err = b.Submit(t.Context(), bank.AtMost("s", "a", "b", 80))
	require.NoError(t, err)
	require.EqualValues(t, 50, bank.Units(t, rec.Legs[1].Amount))
	_, err = b.Transfer(t.Context(), bank.AtMost("s", "a", "b", 80))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(50, 0))
}

// A stored transfer that moves more than was requested is left alone.
func TestAtMostIsKeptByRecovery(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 50, 0)
	_, err := b.Submit(t.Context(), bank.AtMost("s", "a", "b", 30))
	require.NoError(t, err)
	more := bson.D{{Key: "$set", Value: bson.D{{Key: "legs.0.amount", Value: int64(-40)}, {Key: "legs.1.amount", Value: int64(40)}}}}
	_, err = b.DB.Collection("transfers").UpdateByID(t.Context(), "s", more)
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.AtMost("s", "a", "b", 30))
	require.ErrorContains(t, err, "digest")
	require.Equal(t, bank.Balances(50, 0), b.Balances())
}

// The audit finds legs that were raised by hand above the cap.
// The digest covers the cap, not the amount.
func TestAuditFindsWhatIsAboveItsCap(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 60, 0)
	_, err := b.Transfer(t.Context(), bank.AtMost("t", "a", "b", 80))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(60, 0))
	b.SetField("transfers", "t", "legs.0.amount", int64(-90))
	b.SetField("transfers", "t", "legs.1.amount", int64(90))
	require.Equal(t, []audit.Code{audit.WrongDigest}, bank.CodesOf(b.MustAudit()))
}
