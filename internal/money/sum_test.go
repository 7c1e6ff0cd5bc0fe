package money

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sum is exact whatever is added up, even beyond an int64, and keeps the kind that its
// amounts share.
func TestSum(t *testing.T) {
	t.Parallel()
	large, err := stored(t, "1E+20")
	require.NoError(t, err)
	for _, row := range []struct {
		amounts []Amount
		want    Amount
		text    string
	}{
		{nil, Units(0), "0"},
		{[]Amount{Units(3), Units(-5)}, Units(-2), "-2"},
		{[]Amount{Units(math.MaxInt64), Units(math.MaxInt64)}, decimal(t, "18446744073709551614"), "18446744073709551614"},
		{[]Amount{Units(math.MaxInt64), Units(1), Units(-1)}, Units(math.MaxInt64), "9223372036854775807"},
		{[]Amount{decimal(t, "0.1"), decimal(t, "0.25"), decimal(t, "0.05")}, decimal(t, "0.40"), "0.40"},
		{[]Amount{decimal(t, "5"), decimal(t, "-5")}, decimal(t, "0"), "0"},
		{[]Amount{Units(1), decimal(t, "0.5")}, decimal(t, "1.5"), "1.5"},
		{[]Amount{large, decimal(t, "0.5")}, decimal(t, "100000000000000000000.5"), "100000000000000000000.5"},
	} {
		var sum, parts, negated Sum
		for _, a := range row.amounts {
			sum.Add(a)
			negated.Sub(a)
			var one Sum
			one.Add(a)
			parts.AddSum(&one)
		}
		for _, s := range []*Sum{&sum, &parts} {
			got, err := s.Amount()
			require.NoError(t, err)
			assert.Zero(t, got.Cmp(row.want), "%s and not %s", got, row.want)
			assert.Equal(t, row.want.Kind(), got.Kind(), "the kind of %s", got)
			assert.Equal(t, row.text, s.String())
			assert.Equal(t, row.want.Sign(), s.Sign())
		}
		assert.Equal(t, -row.want.Sign(), negated.Sign())
		negated.AddSum(&sum)
		assert.Zero(t, negated.Sign(), "what is added and taken off")
	}
}

// The sum doesn't depend on the order of its amounts.
func TestSumInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	amounts := make([]Amount, 100)
	for i := range amounts {
		amounts[i], _ = exact(big.NewInt(random.Int64()), -random.IntN(MaxPlaces+1))
		if i%3 == 0 {
			amounts[i] = Units(random.Int64() - random.Int64())
		}
	}
	var first Sum
	for _, a := range amounts {
		first.Add(a)
	}
	random.Shuffle(len(amounts), func(i, j int) { amounts[i], amounts[j] = amounts[j], amounts[i] })
	for _, a := range amounts {
		first.Sub(a)
	}
	assert.Zero(t, first.Sign(), first.String())
}

// A sum of more than 34 digits can't be an amount, but can be printed.
func TestSumTooLong(t *testing.T) {
	t.Parallel()
	var sum Sum
	for range 11 {
		sum.Add(MaxBalance(Decimal))
	}
	_, err := sum.Amount()
	require.Error(t, err)
	assert.Equal(t, "10999999999999999999999.999999999989", sum.String())
}
