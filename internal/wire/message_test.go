package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
)

// An amount is written as the driver encodes it, and that costs no memory of its own.
func TestAmountIsWrittenAsEncoded(t *testing.T) {
	for _, amount := range []money.Amount{
		money.Units(0), money.Units(-6000), money.Zero(money.Decimal), money.Max(money.Decimal), money.MaxBalance(money.Decimal).Neg(),
	} {
		m := NewMessage(1000)
		require.Zero(t, testing.AllocsPerRun(10, func() { m.Amount("a", amount) }))
		m.End()
		require.Equal(t, RawValue(amount.Value()), bson.Raw(m.Data).Lookup("a"))
	}
}
