package verbs

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An amount keeps its digits and its kind through every encoding.
func TestAmountEncodings(t *testing.T) {
	t.Parallel()
	for _, a := range []transfer.Amount{
		transfer.Units(0), transfer.Units(-60), transfer.Units(1 << 48),
		bank.Decimal(t, "0"), bank.Decimal(t, "-12.50"), bank.Decimal(t, "999999999999999999.999999999999"), bank.Decimal(t, "100"),
	} {
		type document struct{ Amount transfer.Amount }
		var byBSON, byJSON document
		raw, err := bson.Marshal(document{a})
		require.NoError(t, err)
		require.NoError(t, bson.Unmarshal(raw, &byBSON))
		require.Equal(t, a, byBSON.Amount)
		text, err := json.Marshal(document{a})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &byJSON))
		require.Equal(t, a, byJSON.Amount, "%s", text)
		plain, err := a.MarshalText()
		require.NoError(t, err)
		var byText transfer.Amount
		require.NoError(t, byText.UnmarshalText(plain))
		require.Zero(t, byText.Cmp(a), "%s", plain)
		require.Zero(t, a.Neg().Neg().Cmp(a))
		require.Equal(t, a.IsZero(), a.Cmp(transfer.Units(0)) == 0)
	}
	require.Equal(t, "-12.50", bank.Decimal(t, "-12.50").String())
	require.Equal(t, 1, bank.Decimal(t, "1.1").Cmp(transfer.Units(1)))
	for _, text := range []string{"", "1e3", "NaN", "Infinity", "1.", ".5", "1,5", " 1", "0.1234567890123", "--1"} {
		_, err := transfer.ParseDecimal(text)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
	}
	var a transfer.Amount
	for _, text := range []string{"1.5", "1e3", `"1e3"`, "true", "9223372036854775808"} {
		require.Error(t, json.Unmarshal([]byte(text), &a), text)
	}
	raw, err := bson.Marshal(bson.D{{Key: "amount", Value: 1.5}})
	require.NoError(t, err)
	var d struct{ Amount transfer.Amount }
	require.Error(t, bson.Unmarshal(raw, &d), "a double")
}

// A sum begins with a zero of either kind, and is exact.
// Two kinds have no sum, and neither has what can't be stored.
func TestAmountArithmetic(t *testing.T) {
	t.Parallel()
	units, decimal := transfer.Units, func(text string) transfer.Amount { return bank.Decimal(t, text) }
	nothing := transfer.Amount{}
	most := decimal("9999999999999999999999.999999999999")
	for _, row := range []struct {
		a, b            transfer.Amount
		sum, difference any
	}{
		{units(7), units(5), units(12), units(2)},
		{nothing, units(5), units(5), units(-5)},
		{nothing, decimal("12.50"), decimal("12.50"), decimal("-12.50")},
		{decimal("12.50"), nothing, decimal("12.50"), decimal("12.50")},
		{decimal("0.00"), units(5), units(5), units(-5)},
		{units(5), decimal("0.00"), units(5), units(5)},
		{nothing, decimal("0.00"), decimal("0.00"), decimal("0.00")},
		{decimal("0.00"), nothing, decimal("0.00"), decimal("0.00")},
		{decimal("0.10"), decimal("0.2"), decimal("0.30"), decimal("-0.10")},
		{units(1), decimal("0.01"), transfer.ErrAmountKind, transfer.ErrAmountKind},
		{decimal("1"), units(1), transfer.ErrAmountKind, transfer.ErrAmountKind},
		{units(math.MaxInt64), units(1), transfer.ErrOverflow, units(math.MaxInt64 - 1)},
		{nothing, units(math.MinInt64), units(math.MinInt64), transfer.ErrOverflow},
		{decimal("0"), units(math.MinInt64), units(math.MinInt64), transfer.ErrOverflow},
		{most, decimal("0.000000000002"), transfer.ErrOverflow, decimal("9999999999999999999999.999999999997")},
	} {
		sum, err := row.a.Add(row.b)
		requireSum(t, row.sum, sum, err)
		sum, err = row.b.Add(row.a)
		requireSum(t, row.sum, sum, err)
		difference, err := row.a.Sub(row.b)
		requireSum(t, row.difference, difference, err)
	}
	require.Equal(t, []int{-1, 0, 0, 1}, []int{units(-7).Sign(), nothing.Sign(), decimal("-0.00").Sign(), decimal("0.01").Sign()})
	n, whole := decimal("12.00").Int64()
	require.Equal(t, [2]any{int64(12), true}, [2]any{n, whole})
	n, whole = decimal("12.50").Int64()
	require.Equal(t, [2]any{int64(0), false}, [2]any{n, whole})
}

// requireSum requires an amount, to the digit, or an error.
func requireSum(t *testing.T, want any, got transfer.Amount, err error) {
	t.Helper()
	if failure, fails := want.(error); fails {
		require.ErrorIs(t, err, failure)
		require.NotContains(t, err.Error(), "balance", "an amount is no balance")
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
		require.Zero(t, got)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A reader that takes JSON's numbers for doubles, as JavaScript does, gets every amount
// that a transfer moves, and rounds a balance beyond 2^53.
// Text keeps that, and is read back as the same amount.
func TestAmountsForReadersOfDoubles(t *testing.T) {
	t.Parallel()
	const largestSafe = 1<<53 - 1
	for n, safe := range map[int64]bool{1 << 48: true, -1 << 48: true, largestSafe: true, largestSafe + 2: false, 1<<62 - 1: false} {
		amount := transfer.Units(n)
		encoded, err := json.Marshal(amount)
		require.NoError(t, err)
		var double any
		require.NoError(t, json.Unmarshal(encoded, &double))
		require.Equal(t, safe, double == float64(n) && int64(double.(float64)) == n, n)
		var exact transfer.Amount
		require.NoError(t, json.Unmarshal(encoded, &exact))
		require.Equal(t, amount, exact)

		asText, err := json.Marshal(map[string]string{"balance": amount.String()})
		require.NoError(t, err)
		var read map[string]string
		require.NoError(t, json.Unmarshal(asText, &read))
		require.NoError(t, exact.UnmarshalText([]byte(read["balance"])))
		require.Equal(t, amount, exact)
	}
	var decimal transfer.Amount
	require.NoError(t, json.Unmarshal([]byte(`"6000"`), &decimal))
	require.Equal(t, bank.Decimal(t, "6000"), decimal, "a string is a decimal, also without a point")
}

// A transfer names the currency of all its accounts, which may be none, whichever side
// they are on and whichever process runs it.
// The refusal names the first account that has another currency.
// An account whose currency is missing, null or empty has none.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for id, currency := range map[string]any{"eur": "EUR", "euro": "EUR", "usd": "USD", "lower": "eur", "null": nil, "empty": "", "odd": 5} {
		b.Insert("accounts", bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(100)}, {Key: "currency", Value: currency}})
	}
	b.Insert("accounts", bson.D{{Key: "_id", Value: "none"}, {Key: "balance", Value: int64(100)}})
	end := bank.InBackground(t, b.Coordinator)
	for _, c := range []struct{ from, to, currency, refused string }{
		{"eur", "euro", "EUR", ""},
		{"none", "null", "", ""},
		{"null", "empty", "", ""},
		{"eur", "euro", "", "eur"},
		{"none", "empty", "EUR", "none"},
		{"eur", "euro", "USD", "eur"},
		{"eur", "usd", "EUR", "usd"},
		{"usd", "eur", "EUR", "usd"},
		{"eur", "none", "EUR", "none"},
		{"none", "eur", "EUR", "none"},
		{"none", "eur", "", "eur"},
		{"eur", "lower", "EUR", "lower"},
		{"eur", "odd", "EUR", "odd"},
		{"odd", "none", "", "odd"},
	} {
		req := bank.Move(c.from+" to "+c.to+" in "+c.currency, c.from, c.to, 1)
		req.Currency = c.currency
		submitted := req
		submitted.ID = "submitted " + req.ID
		_, err := b.Submit(t.Context(), submitted)
		require.NoError(t, err)
		rec, told := b.Transfer(t.Context(), req)
		later, waited := b.Wait(t.Context(), submitted.ID)
		require.Equal(t, c.currency, rec.Currency)
		for _, err := range []error{told, waited} {
			if c.refused == "" {
				require.NoError(t, err, req.ID)
				continue
			}
			var refused *transfer.RefusedError
			require.ErrorIs(t, err, transfer.ErrCurrencyMismatch, req.ID)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.refused, refused.Account)
		}
		require.Equal(t, rec.State, later.State)
		other := req
		other.Currency = "CHF"
		_, err = b.Transfer(t.Context(), other)
		require.ErrorIs(t, err, transfer.ErrIDConflict, "the currency is part of the payload")
	}
	end()
	b.CheckBooks(map[string]int64{"eur": 100, "euro": 100, "usd": 100, "lower": 100, "null": 100, "empty": 100, "odd": 100, "none": 100})
}
