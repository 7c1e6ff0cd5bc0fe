package transfer_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// An amount is the same after any encoding, to the digit, and of the same kind.
func TestAmountEncodings(t *testing.T) {
	t.Parallel()
	for _, a := range []transfer.Amount{
		transfer.Units(0), transfer.Units(-60), transfer.Units(1 << 48),
		decimal(t, "0"), decimal(t, "-12.50"), decimal(t, "999999999999999999.999999999999"), decimal(t, "100"),
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
	require.Equal(t, "-12.50", decimal(t, "-12.50").String())
	require.Equal(t, 1, decimal(t, "1.1").Cmp(transfer.Units(1)))
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
