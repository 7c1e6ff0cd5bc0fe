package money

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// In JSON, units are a number and decimals are a string.
// An amount is never read from a fraction, which others may have rounded.
func TestJSON(t *testing.T) {
	t.Parallel()
	for want, amount := range map[string]Amount{"5": Units(5), "-5": Units(-5), `"12.50"`: decimal(t, "12.50"), `"12"`: decimal(t, "12")} {
		got, err := json.Marshal(amount)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	for _, text := range []string{
		"12.50", "1e3", "1E0", "true", "{}", "[]", "[5]", `""`, `"x"`, `"1e3"`, `"NaN"`, "9223372036854775808",
		"-9223372036854775809", `"0.0000000000001"`, `"\ud800"`,
	} {
		amount := Units(77)
		require.Error(t, json.Unmarshal([]byte(text), &amount), text)
		assert.Equal(t, Units(77), amount, "changed by %s", text)
	}
	amount := Units(77)
	require.NoError(t, json.Unmarshal([]byte("null"), &amount))
	assert.Equal(t, Units(77), amount, "null leaves a value as it is")
	for _, text := range []string{"", "\"", "\"1", "nul"} {
		require.Error(t, amount.UnmarshalJSON([]byte(text)), text)
	}
}

// As text the point distinguishes the two kinds.
func TestText(t *testing.T) {
	t.Parallel()
	for want, amount := range map[string]Amount{"5": Units(5), "-5": Units(-5), "12.50": decimal(t, "12.50"), "12.0": decimal(t,
		"12"), "0.0": Zero(Decimal)} {
		got, err := amount.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	for _, text := range []string{"", " 5", "5 ", "five", "5.", ".5", "1e3", "9223372036854775808", "1.0000000000001"} {
		amount := Units(77)
		require.Error(t, amount.UnmarshalText([]byte(text)), text)
		assert.Equal(t, Units(77), amount)
	}
	keys := map[Amount]int{Units(1): 2}
	encoded, err := json.Marshal(keys)
	require.NoError(t, err)
	assert.JSONEq(t, `{"1": 2}`, string(encoded))
}

// In BSON, units are an int64 even if they would fit into less, and a refused value
// leaves the old one.
func TestBSON(t *testing.T) {
	t.Parallel()
	for kind, amount := range map[bson.Type]Amount{bson.TypeInt64: Units(5), bson.TypeDecimal128: decimal(t, "5")} {
		document, err := bson.Marshal(bson.M{"a": amount})
		require.NoError(t, err)
		assert.Equal(t, kind, bson.Raw(document).Lookup("a").Type)
	}
	for _, value := range []any{5.0, "5", true, bson.M{}} {
		document, err := bson.Marshal(bson.M{"a": value})
		require.NoError(t, err)
		holder := struct{ A Amount }{Units(77)}
		require.Error(t, bson.Unmarshal(document, &holder))
		assert.Equal(t, Units(77), holder.A)
	}
}

// The sum of random amounts is the same in any order, and what was added can be
// subtracted again.
func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	digits := func(n int) string {
		var text strings.Builder
		for range 1 + random.IntN(n) {
			text.WriteByte(byte('0' + random.IntN(10)))
		}
		return text.String()
	}
	for range 2000 {
		amounts := make([]Amount, 5)
		total := Zero(Decimal)
		for i := range amounts {
			text := digits(18) + "." + digits(MaxPlaces)
			if random.IntN(2) == 0 {
				text = "-" + text
			}
			amounts[i] = decimal(t, text)
			sum, err := total.Add(amounts[i])
			require.NoError(t, err)
			total = sum
		}
		random.Shuffle(len(amounts), func(i, j int) { amounts[i], amounts[j] = amounts[j], amounts[i] })
		for _, amount := range amounts {
			rest, err := total.Add(amount.Neg())
			require.NoError(t, err)
			require.Equal(t, -amount.Sign(), rest.Cmp(total), "%s off %s", amount, total)
			total = rest
		}
		require.Zero(t, total.Sign())
	}
}
