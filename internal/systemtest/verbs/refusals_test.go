package verbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A transfer to 1,000 accounts, 999 of them missing, reports the first missing one, some
// others, and their number.
// It does so at once, on each repeated request, and in the record.
// It names only a few, however long their names are.
func TestManyAreRefused(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10_000)
	req := transfer.Request{ID: "salaries", Legs: []transfer.Leg{{Account: "a", Amount: transfer.Units(-999)}}}
	for i := range 999 {
		req.Legs = append(req.Legs, transfer.Leg{Account: fmt.Sprintf("employee-%03d", i), Amount: transfer.Units(1)})
	}
	for range 2 {
		rec, err := b.Transfer(t.Context(), req)
		b.RequireRefused(rec, err, transfer.ErrAccountNotFound, "accountNotFound")
		var refused *transfer.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "employee-000", refused.Account)
		require.Equal(t, 998, refused.Others)
		require.Equal(t, 998, rec.Failure.Others)
		for _, told := range []string{err.Error(), rec.Failure.Message + ": " + rec.Failure.Detail} {
			require.Contains(t, told, `and 998 more are refused, "employee-001", "employee-002", "employee-003" among them`)
			require.Equal(t, 1, strings.Count(told, "account not found"))
			require.Less(t, len(told), 300)
		}
	}

	long := strings.Repeat("é", 127)
	for n, want := range map[int]string{1: `" is refused as well`, 2: "and 2 more are refused: \"", 4: "and 4 more are refused, \""} {
		req := transfer.Request{ID: fmt.Sprint("long-", n), Legs: []transfer.Leg{{Account: "a", Amount: transfer.Units(-int64(n) - 1)}}}
		for i := range n + 1 {
			req.Legs = append(req.Legs, transfer.Leg{Account: long[:252] + fmt.Sprint(i), Amount: transfer.Units(1)})
		}
		rec, err := b.Transfer(t.Context(), req)
		b.RequireRefused(rec, err, transfer.ErrAccountNotFound, "accountNotFound")
		require.Equal(t, n, rec.Failure.Others)
		require.ErrorContains(t, err, want)
		require.Less(t, len(rec.Failure.Detail), 400)
	}
	b.CheckBooks(bank.Balances(10_000))
}

// A malformed account is refused with the reason, and without its figures, by transfers
// and by reads of the account.
// Once it is repaired, another transfer succeeds.
func TestWhyAnAccountIsNone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	exact := bank.Decimal(t, "7.5")
	for name, row := range map[string]struct {
		document bson.M
		amount   transfer.Amount
		want     string
		readable bool
	}{
		"no balance":        {bson.M{"saldo": int64(77)}, transfer.Units(1), `there is no balance field "balance"`, false},
		"a balance of null": {bson.M{"balance": nil}, transfer.Units(1), "the balance is stored as a null", false},
		"a double":          {bson.M{"balance": 77.0}, transfer.Units(1), "stored as a double: store an int32, an int64 or a Decimal128", false},
		"undefined":         {bson.M{"balance": bson.Undefined{}}, transfer.Units(1), "the balance is stored as an undefined", false},
		"a text":            {bson.M{"balance": "77"}, transfer.Units(1), "the balance is stored as a string", false},
		"an array":          {bson.M{"balance": bson.A{int64(77)}}, transfer.Units(1), "the balance is stored as an array", false},
		"not a number": {
			bson.M{"balance": notANumber(t)}, bank.Decimal(t, "1.0"), "the balance is no number that can be stored exactly", false,
		},
		"units for decimals": {bson.M{"balance": int64(77)}, bank.Decimal(t, "1.0"), "of whole units, and the amount of decimals", true},
		"decimals for units": {bson.M{"balance": exact}, transfer.Units(1), "the balance is of decimals, and the amount of whole units", true},
		"a floor of double":  {bson.M{"balance": int64(77), "floor": 7.7}, transfer.Units(1), `field "floor", is stored as a double`, false},
		"a floor of text":    {bson.M{"balance": int64(77), "floor": "7"}, transfer.Units(1), `field "floor", is stored as a string`, false},
		"a floor of decimal": {bson.M{"balance": int64(77), "floor": exact}, transfer.Units(1), "the floor is of decimals", true},
		"markers in a list":  {bson.M{"balance": int64(77), "pending": bson.A{}}, transfer.Units(1), "see RepairPending", true},
	} {
		t.Run(name, func(t *testing.T) {
			row.document["_id"] = name
			b.Insert("accounts", row.document)
			t.Cleanup(func() { b.Remove("accounts", name) })
			req := transfer.Request{ID: name, From: name, To: "a", Amount: row.amount}
			for range 2 {
				rec, err := b.Transfer(t.Context(), req)
				b.RequireRefused(rec, err, transfer.ErrAmountKind, "amountKind")
				var refused *transfer.RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, name, refused.Account)
				require.ErrorContains(t, err, row.want)
				require.Contains(t, refused.Detail, row.want)
				require.Equal(t, rec.Failure.Detail, refused.Detail)
				require.NotContains(t, refused.Detail, "7")
			}
			if row.readable {
				return
			}
			_, err := b.GetAccount(t.Context(), name)
			require.ErrorIs(t, err, transfer.ErrAmountKind)
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "7")
		})
	}
	b.CheckBooks(bank.Balances(100))
}

// The server sets no marker in null. The refusal says which field that is, and who
// repairs it, also when it is told again.
func TestRefusalOfMarkersThatAreNull(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.SetField("accounts", "b", "pending", nil)
	for range 2 {
		_, err := b.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
		require.ErrorIs(t, err, transfer.ErrUnwritable)
		require.ErrorContains(t, err, `PathNotViable; the field "pending" is null, or no document: see RepairPending`)
	}
	require.NoError(t, b.RepairPending(t.Context(), "", "b"))
	b.CheckBooks(bank.Balances(100, 0))
}

func notANumber(t *testing.T) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128("NaN")
	require.NoError(t, err)
	return d
}

// The balance in a refusal is the one that was too low, even if the account is read again
// before the transfer is rolled back.
func TestRefusedBalanceIsTheOneThatWasTooLow(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 100)
	b.LeaveTraces("t", 60, "Preparing", bank.Unprepared, bank.Unprepared)
	b.MustMove("spent", 90)
	w := &bank.Wire{Of: bank.Writes, To: "accounts", OnStrike: func() { // a and b are about to get new fences
		b.SetField("accounts", "b", "pending.t", int64(60)) // by a late prepare, so that both are read again
		_, err := b.Transfer(t.Context(), bank.Move("enough", "b", "a", 90))
		require.NoError(t, err)
	}}
	c := b.NewCoordinator(b.Through(w.Client()), transfer.WithStallThreshold(0), transfer.WithFenceCache(0))
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.True(t, w.HasStruck())
	var refused *transfer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	require.Equal(t, "10", refused.Balance.String())
	b.CheckBooks(bank.Balances(100, 100))
}
