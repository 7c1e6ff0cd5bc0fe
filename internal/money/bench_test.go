package money

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumsOfUnitsAtTheEdges promises that a sum of units is that of math/big wherever an
// int64 may wrap around, or an error if no int64 holds it.
func TestSumsOfUnitsAtTheEdges(t *testing.T) {
	var edges []int64
	for _, edge := range []int64{math.MinInt64, -maxBalanceUnits, -maxUnits, 0, maxUnits, maxBalanceUnits, math.MaxInt64} {
		// Values beyond an edge come in at the other one.
		edges = append(edges, edge-2, edge-1, edge, edge+1, edge+2)
	}
	for _, a := range edges {
		for _, b := range edges {
			want := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
			sum, err := Units(a).Add(Units(b))
			require.Equal(t, want.IsInt64(), err == nil, "%d + %d: %v", a, b, err)
			if err != nil {
				require.Equal(t, errOutOfRange(), err)
				require.Zero(t, sum)
				continue
			}
			require.Equal(t, Units(want.Int64()), sum, "%d + %d", a, b)
		}
	}
}

// TestUnitsAllocateNothing promises that arithmetic with units allocates nothing.
func TestUnitsAllocateNothing(t *testing.T) {
	a, b, right := Units(-6000), Units(1<<40), true
	count := testing.AllocsPerRun(1000, func() {
		sum, err := a.Add(b)
		right = right && err == nil && sum.Cmp(b) < 0 && sum.Within(MaxBalance(Whole)) &&
			a.Neg().Sign() > 0 && a.Within(Max(Whole)) && a.Places() == Zero(Whole).Places()
	})
	require.True(t, right)
	require.Zero(t, count)
}

// TestDecimalsAllocateNothing promises that arithmetic with decimals allocates nothing, up
// to the largest balance.
func TestDecimalsAllocateNothing(t *testing.T) {
	price, err := Parse("12.50")
	require.NoError(t, err)
	least, right := MaxBalance(Decimal).Neg(), true
	count := testing.AllocsPerRun(1000, func() {
		sum, err := least.Add(price)
		right = right && err == nil && sum.Cmp(price) < 0 && sum.Within(MaxBalance(Decimal)) &&
			price.Neg().Sign() < 0 && price.Within(Max(Decimal)) && Zero(Decimal).Sign() == 0
	})
	require.True(t, right)
	require.Zero(t, count)
}

func BenchmarkAdd(b *testing.B) {
	decimal, err := Parse("12.50")
	require.NoError(b, err)
	for name, amount := range map[string]Amount{"units": Units(6000), "decimals": decimal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := amount.Add(amount); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
