package insight

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Explain names the account or the document that was the cause of a failure, and the
// currency of each amount.
func TestExplainSaysWhoAndInWhat(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 10, 0)
	for _, id := range []string{"x", "y"} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(100), Currency: "EUR"})
		require.NoError(t, err)
	}
	euros := bank.Move("euros", "x", "y", 5)
	euros.Currency = "EUR"
	_, err := b.Transfer(t.Context(), euros)
	require.NoError(t, err)
	e, err := b.Explain(t.Context(), "euros")
	require.NoError(t, err)
	require.Equal(t, "EUR", e.Participants[0].Currency)
	require.Contains(t, e.String(), "  settled   \"x\" -5 \"EUR\"\n  settled   \"y\" 5 \"EUR\"\n")

	none := bank.Payment("no order", "o-none", 5)
	for _, row := range []struct {
		req  transfer.Request
		want string
	}{
		{bank.Move("poor", "a", "b", 11), "failed:   insufficientFunds: account \"a\"\n"},
		{bank.Move("nobody", "a", "nobody", 1), "failed:   accountNotFound: account \"nobody\"\n"},
		{bank.Move("none", "a", "x", 1), "failed:   currencyMismatch: account \"x\": currency differs from the account's"},
		{none, "failed:   requirementFailed: \"o-none\" of \"orders\": "},
	} {
		_, err := b.Transfer(t.Context(), row.req)
		require.Error(t, err)
		e, err := b.Explain(t.Context(), row.req.ID)
		require.NoError(t, err)
		require.Contains(t, e.String(), "\n"+row.want)
	}
	b.CheckBooks(map[string]int64{"a": 10, "b": 0, "x": 100, "y": 100})
}
