package money

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestDecimalsAtTheEdges promises that arithmetic with decimals is that of math/big
// wherever a coefficient goes from one word into the next, becomes zero, or has too many
// digits.
func TestDecimalsAtTheEdges(t *testing.T) {
	minusZero := bson.NewDecimal128(1<<63|uint64(-bson.MinDecimal128Exp)<<coefficientBits, 0)
	edges := []Amount{MaxBalance(Decimal), Max(Decimal), MaxExact(Decimal), Units(-5), {kind: Decimal, decimal: minusZero}}
	for _, text := range []string{
		"0", "0.00", "0E+20", "0E-64", "1", "-1", "1.50", "-1.5", "0.000000000001", "1E+20", "1E+64", "-1E-64", "1E-33",
		"18446744073709551615", "18446744073709551616", "-18446744073709551617", "1844674407370955161.6", "1E+15", "1E+16", "3E+33",
		"5192296858534827628530496329220095", "5192296858534827.628530496329220096", "9999999999999999999999999999999999",
		"-9999999999999999999999999999999999", "9999999999999999999999999999999998", "5000000000000000000000000000000000",
	} {
		d, err := bson.ParseDecimal128(text)
		require.NoError(t, err)
		amount, err := fromDecimal(d)
		require.NoError(t, err)
		edges = append(edges, amount)
	}
	for _, a := range edges {
		for _, b := range edges {
			requireArithmetic(t, a, b)
		}
		requireArithmetic(t, a, a.Neg())
	}
}

// What is infinite, or no number, or has a coefficient of more bits, is not usual.
func TestUnusualDecimals(t *testing.T) {
	for _, high := range []uint64{0x1f << 58, 0x1e << 58, 0x3e << 58, 3 << 61, 7<<61 | 1, 3<<61 | 0x1800<<47} {
		_, usual := Amount{kind: Decimal, decimal: bson.NewDecimal128(high, 5)}.number()
		require.False(t, usual, "%x", high)
	}
}
