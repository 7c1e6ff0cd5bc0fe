package transfer_test

import (
	"encoding/json"
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
