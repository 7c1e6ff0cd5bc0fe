package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// part asks for a part of a transfer, by its amount.
func part(id, of string, units int64) transfer.Reversal {
	return transfer.Reversal{ID: id, Of: of, Amount: transfer.Units(units)}
}

// rest asks for all that is left of a transfer.
func rest(id, of string) transfer.Reversal { return transfer.Reversal{ID: id, Of: of, All: true} }

// dyingReversal makes a reversal in a process that dies at a step, whose message is lost.
func dyingReversal(b *bank.Bank, step bank.Step, reversal transfer.Reversal) {
	b.Dying(step, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Reverse(ctx, reversal)
		return err
	})
}

// A transfer is reversed in parts, each once, and never by more than it has moved.
// What is left is reported, and the ID of what comes too late stays free.
func TestReversePart(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("t", 60)
	for range 2 {
		rec, err := b.Reverse(t.Context(), part("r1", "t", 25))
		require.NoError(t, err)
		require.Equal(t, "t", rec.Reverses)
		require.EqualValues(t, 25, bank.Units(t, rec.Legs[0].Amount))
	}
	requireReversed(b, "t", 25, "")
	original, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, []transfer.Leg{
		{Account: "a", Amount: transfer.Units(25)}, {Account: "b", Amount: transfer.Units(-25)},
	}, original.ReversedLegs)
	for range 2 {
		rec, err := b.Reverse(t.Context(), part("r2", "t", 36))
		require.ErrorIs(t, err, transfer.ErrReversalExceeds)
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
		require.Equal(t, "t", rec.ID)
		require.EqualValues(t, 25, bank.Units(t, rec.Reversed))
	}
	_, err = b.Reverse(t.Context(), part("r2", "t", 35))
	require.NoError(t, err)
	requireReversed(b, "t", 60, "r2")
	for _, r := range []transfer.Reversal{part("r3", "t", 1), part("r3", "t", 1000), rest("r3", "t")} {
		rec, err := b.Reverse(t.Context(), r)
		require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
		require.Equal(t, "r2", rec.ReversedBy)
	}
	for _, r := range []transfer.Reversal{part("r1", "t", 25), part("r2", "t", 35)} {
		_, err := b.Reverse(t.Context(), r)
		require.NoError(t, err, "what was told of an ID stays so")
	}
	b.CheckBooks(bank.Balances(100, 0))
}

func requireReversed(b *bank.Bank, id string, units int64, by string) {
	b.T.Helper()
	rec, err := b.Get(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, units, bank.Units(b.T, rec.Reversed))
	require.Equal(b.T, by, rec.ReversedBy)
}

// The parts of a transfer with many legs are legs, each within what is left of its
// account's part, in whatever ledger and kind of amount.
func TestReverseLegs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	legs := func(a, b, c int64) []transfer.Leg {
		var all []transfer.Leg
		for i, units := range []int64{a, b, c} {
			if units != 0 {
				all = append(all, transfer.Leg{Account: bank.AccountName(i), Amount: transfer.Units(units)})
			}
		}
		return all
	}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Legs: legs(-60, 50, 10)})
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "fee", Of: "t", Legs: legs(10, 0, -10)})
	require.NoError(t, err)
	exceeds := func(account string, asked, reversed []transfer.Leg) {
		t.Helper()
		rec, err := b.Reverse(t.Context(), transfer.Reversal{ID: "more", Of: "t", Legs: asked})
		require.ErrorIs(t, err, transfer.ErrReversalExceeds)
		require.ErrorContains(t, err, "on account "+account)
		require.Equal(t, reversed, rec.ReversedLegs)
	}
	exceeds(`"c"`, legs(11, -10, -1), legs(10, 0, -10)) // nothing is left of c's part
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "some", Of: "t", Legs: legs(20, -20, 0)})
	require.NoError(t, err)
	b.RequireStanding("a", 70, 70, 0)
	exceeds(`"a"`, legs(31, -31, 0), legs(30, -20, -10))
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.True(t, rec.Reversed.IsZero(), "that is of transfers between two accounts")
	require.Equal(t, legs(30, -20, -10), rec.ReversedLegs)

	rec, err = b.Reverse(t.Context(), rest("all", "t"))
	require.NoError(t, err)
	require.Len(t, rec.Legs, 2, "nothing is left of c's part")
	require.EqualValues(t, 30, bank.Units(t, rec.Legs[0].Amount))
	for range 2 {
		rec, err = b.Reverse(t.Context(), rest("all", "t"))
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	rec, err = b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, legs(60, -50, -10), rec.ReversedLegs)
	b.RequireStanding("a", 100, 100, 0)
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// What can't be meant is refused before anything is stored, and the text says why.
func TestReversalThatMakesNoSense(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	b.MustMove("t", 60)
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "split", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-3)}, {Account: "b", Amount: transfer.Units(2)}, {Account: "c", Amount: transfer.Units(1)},
	}})
	require.NoError(t, err)
	leg := func(account string, units int64) transfer.Leg {
		return transfer.Leg{Account: account, Amount: transfer.Units(units)}
	}
	for text, r := range map[string]transfer.Reversal{
		"exactly one of them":         {Of: "t"},
		"exactly one of":              {Of: "t", All: true, Amount: transfer.Units(1)},
		"and exactly one":             {Of: "t", Amount: transfer.Units(1), Legs: []transfer.Leg{leg("a", 1), leg("b", -1)}},
		"that is not zero":            {Of: "t", Amount: transfer.Units(0)},
		"must be positive":            {Of: "t", Amount: transfer.Units(-1)},
		"it moved 3 accounts":         {Of: "split", Amount: transfer.Units(1)},
		`it did not move account "c"`: {Of: "t", Legs: []transfer.Leg{leg("a", 1), leg("c", -1)}},
		"moves the same way":          {Of: "t", Legs: []transfer.Leg{leg("a", -1), leg("b", 1)}},
		"must sum to zero":            {Of: "t", Legs: []transfer.Leg{leg("a", 2), leg("b", -1)}},
		"whole units or decimals":     {Of: "t", Amount: bank.Decimal(t, "1")},
		"an ID of its own":            {Of: "r", All: true},
	} {
		r.ID = "r"
		_, err := b.Reverse(t.Context(), r)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	}
	require.False(t, b.RawTransfer("r").Found)
	requireReversed(b, "t", 0, "")
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// All that is left and an amount are different payloads, even if they come to the same.
// An amount and the same legs are one.
func TestReversalPayload(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 200, 0)
	b.MustMove("t", 60)
	b.MustMove("u", 60)
	_, err := b.Reverse(t.Context(), rest("all", "t"))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), part("part", "u", 60))
	require.NoError(t, err)
	same := []transfer.Leg{{Account: "b", Amount: transfer.Units(-60)}, {Account: "a", Amount: transfer.Units(60)}}
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "part", Of: "u", Legs: same})
	require.NoError(t, err)
	for _, r := range []transfer.Reversal{part("all", "t", 60), rest("part", "u"), part("part", "u", 59), rest("all", "u")} {
		_, err := b.Reverse(t.Context(), r)
		require.ErrorIs(t, err, transfer.ErrIDConflict, "%+v", r)
	}
	b.CheckBooks(bank.Balances(200, 0))
}

// Many callers in several processes reverse parts of one transfer at once.
// As many succeed as fit, none that fits is refused, and all that is left goes to one.
func TestManyReversalsAtOnce(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	b.MustMove("t", 105)
	processes := b.Processes(4)
	const each, callers = 10, 24
	var succeeded atomic.Int64
	answers := bank.CallAll(callers, func(i int) (transfer.Record, error) {
		rec, err := processes[i%len(processes)].Reverse(t.Context(), part(fmt.Sprint("r", i), "t", each))
		if err == nil {
			succeeded.Add(1)
		}
		return rec, err
	})()
	require.EqualValues(t, 10, succeeded.Load(), "as many as fit")
	for _, a := range answers {
		require.True(t, a.Err == nil || errors.Is(a.Err, transfer.ErrReversalExceeds), "%v", a.Err)
	}
	requireReversed(b, "t", 100, "")
	rec, err := b.Reverse(t.Context(), rest("all", "t"))
	require.NoError(t, err)
	require.EqualValues(t, 5, bank.Units(t, rec.Legs[0].Amount))
	requireReversed(b, "t", 105, "all")
	b.CheckBooks(bank.Balances(1000, 0))
}

// Several reversals of all that is left, and parts beside them: one of all succeeds, and
// takes what the parts have left.
func TestAllBesideParts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	processes := b.Processes(3)
	for round := range 6 {
		of := fmt.Sprint("t", round)
		b.MustMove(of, 60)
		answers := bank.CallAll(9, func(i int) (transfer.Record, error) {
			r := part(fmt.Sprintf("%s-r%d", of, i), of, 10)
			if i%3 == 0 {
				r = rest(r.ID, of)
			}
			return processes[i%len(processes)].Reverse(t.Context(), r)
		})()
		for _, a := range answers {
			require.True(t, a.Err == nil || errors.Is(a.Err, transfer.ErrAlreadyReversed), "%v", a.Err)
		}
		rec, err := b.Get(t.Context(), of)
		require.NoError(t, err)
		require.EqualValues(t, 60, bank.Units(t, rec.Reversed))
	}
	b.CheckBooks(bank.Balances(1000, 0))
}

// A reversal that fits waits for one that is under way, and not longer than its context.
// What that one fails to take is free again.
func TestReversalWaits(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		b := bank.New(t, 100, 0)
		b.MustMove("t", 61)
		_, err := b.Reverse(t.Context(), part("done", "t", 1))
		require.NoError(t, err)
		dyingReversal(b, bank.Decision, part("dead", "t", 20))
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = b.Reverse(soon, part("hasty", "t", 20))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), "%v", err)
		require.False(t, b.RawTransfer("hasty").Found)

		end := bank.CallAll(2, func(i int) (transfer.Record, error) {
			if i == 0 {
				return b.Reverse(t.Context(), part("patient", "t", 20))
			}
			return b.Reverse(t.Context(), rest("all", "t"))
		})
		_, err = b.Reverse(t.Context(), part("too much", "t", 61))
		require.ErrorIs(t, err, transfer.ErrReversalExceeds, "it does not wait")
		_, err = b.Reverse(t.Context(), part("done", "t", 1))
		require.NoError(t, err)
		if cancelled {
			_, err := b.Cancel(t.Context(), "dead", "a test")
			require.NoError(t, err)
		}
		b.RecoverAll()
		for _, a := range end() {
			require.True(t, a.Err == nil || errors.Is(a.Err, transfer.ErrAlreadyReversed), "%v", a.Err)
		}
		rec, err := b.Get(t.Context(), "all")
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
		requireReversed(b, "t", 61, "all")
		b.CheckBooks(bank.Balances(100, 0))
	}
}

// A reversal of all that is left which was stored when more was left takes what is left
// once it comes to it, by whichever process.
func TestAllIsPlannedAnew(t *testing.T) {
	t.Parallel()
	for _, taken := range []int64{20, 60} {
		b := bank.New(t, 100, 0)
		b.MustMove("t", 60)
		dyingReversal(b, bank.Prepares, rest("all", "t"))
		_, err := b.Reverse(t.Context(), part("part", "t", taken))
		require.NoError(t, err)
		b.RecoverAll()
		rec, err := b.Reverse(t.Context(), rest("all", "t"))
		if taken == 60 {
			require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
			require.Equal(t, transfer.Failed, transfer.OutcomeOf(err))
			require.Equal(t, transfer.StateFail, rec.State)
			requireReversed(b, "t", 60, "part")
		} else {
			require.NoError(t, err)
			require.EqualValues(t, 40, bank.Units(t, rec.Legs[0].Amount))
			requireReversed(b, "t", 60, "all")
		}
		b.CheckBooks(bank.Balances(100, 0))
	}
}

// There is nothing to take back of a transfer that has moved no money, but for an effect.
func TestReversalOfAnEffect(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t)
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Effects: bank.Payment("t", "o-1", 1).Effects})
	require.NoError(t, err)
	rec, err := b.Reverse(t.Context(), rest("r", "t"))
	require.ErrorIs(t, err, transfer.ErrNotReversible)
	require.ErrorContains(t, err, "it has moved no money")
	require.Equal(t, "t", rec.ID)
	_, err = b.Reverse(t.Context(), part("r", "t", 1))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.False(t, b.RawTransfer("r").Found)
	require.Empty(t, b.MustAudit().Findings)
}

// A refused part leaves what it would have taken to others, under another ID.
func TestRefusedPart(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	b.MustMove("t", 60)
	_, err := b.Transfer(t.Context(), bank.Move("spent", "b", "c", 50))
	require.NoError(t, err)
	for range 2 {
		_, err := b.Reverse(t.Context(), part("r1", "t", 20))
		require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	}
	requireReversed(b, "t", 0, "")
	_, err = b.Reverse(t.Context(), part("r2", "t", 10))
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("earned", "c", "b", 50))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), part("r3", "t", 50))
	require.NoError(t, err)
	requireReversed(b, "t", 60, "r3")
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// Parts of what was posted of a hold, in decimals.
func TestReversePartOfAHold(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	for id, balance := range map[string]string{"a": "100.00", "b": "0.00"} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: bank.Decimal(t, balance)})
		require.NoError(t, err)
	}
	_, err := b.Hold(t.Context(), transfer.Request{ID: "h", From: "a", To: "b", Amount: bank.Decimal(t, "60.00")}, time.Hour)
	require.NoError(t, err)
	_, err = b.Post(t.Context(), "h", transfer.PostAmount(bank.Decimal(t, "25.50")))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r0", Of: "h", Amount: bank.Decimal(t, "25.51")})
	require.ErrorIs(t, err, transfer.ErrReversalExceeds)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "r1", Of: "h", Amount: bank.Decimal(t, "0.5")})
	require.NoError(t, err)
	rec, err := b.Get(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, 0, rec.Reversed.Cmp(bank.Decimal(t, "0.5")), "%s", rec.Reversed)
	rec, err = b.Reverse(t.Context(), rest("r2", "h"))
	require.NoError(t, err)
	require.Equal(t, 0, rec.Legs[0].Amount.Cmp(bank.Decimal(t, "25")), "%s", rec.Legs[0].Amount)
	account, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, 0, account.Balance.Cmp(bank.Decimal(t, "100")))
	require.Empty(t, b.MustAudit().Findings)
}
