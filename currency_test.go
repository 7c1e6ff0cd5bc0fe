package transfer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// A transfer names the currency of each of its accounts, none included, whichever side they are on and whoever runs it; the refusal names
// the first account that has another one. An account whose currency is missing, null or empty has none.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for id, currency := range map[string]any{"eur": "EUR", "euro": "EUR", "usd": "USD", "lower": "eur", "null": nil, "empty": "", "odd": 5} {
		b.insert("accounts", bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(100)}, {Key: "currency", Value: currency}})
	}
	b.insert("accounts", bson.D{{Key: "_id", Value: "none"}, {Key: "balance", Value: int64(100)}})
	end := inBackground(t, b.Coordinator)
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
		req := move(c.from+" to "+c.to+" in "+c.currency, c.from, c.to, 1)
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
	b.audit(map[string]int64{"eur": 100, "euro": 100, "usd": 100, "lower": 100, "null": 100, "empty": 100, "odd": 100, "none": 100})
}
