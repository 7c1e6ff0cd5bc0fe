package money

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func decimal(t *testing.T, text string) Amount {
	t.Helper()
	amount, err := Parse(text)
	require.NoError(t, err)
	return amount
}

// stored reads the amount that the database holds for a decimal with this text, including
// exponents and special values.
func stored(t *testing.T, text string) (Amount, error) {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	require.NoError(t, err)
	return FromBSON(raw(t, d))
}

func raw(t *testing.T, value any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(value)
	require.NoError(t, err)
	return bson.RawValue{Type: kind, Value: data}
}

// A decimal is read in plain notation only, and keeps the digits that it was written
// with.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "-0.00": "0.00", "+5": "5", "12.50": "12.50", "-12.50": "-12.50", "007.10": "7.10",
		"0.000000000001": "0.000000000001", "1.50000000000000": "1.500000000000",
		"-0.5": "-0.5", "1000": "1000", "999999999999999999.999999999999": "999999999999999999.999999999999",
		"9999999999999999999999.999999999999": "9999999999999999999999.999999999999",
		strings.Repeat("0", 100) + "1":        "1",
	} {
		amount, err := Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, amount.String())
		assert.Equal(t, Decimal, amount.Kind())
	}
	for _, text := range []string{
		"", "+", "-", ".", "1.", ".5", "-.5", "1.2.3", "1,5", "1e3", "1E3", "0x10", "1_000", " 1", "1 ", "--1", "+-1", "NaN",
		"Infinity", "-Inf", "١",
		"1.0000000000001", "1.00000000000001", "10000000000000000000000", "12\x00", "½",
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

// Only int32, int64 and finite decimals are amounts in the database.
// A double is not an amount, whatever its value.
func TestFromBSON(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]Amount{
		int32(-5): Units(-5), int32(math.MinInt32): Units(math.MinInt32), int64(5): Units(5), int64(math.MinInt64): Units(math.MinInt64),
	} {
		got, err := FromBSON(raw(t, value))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		"12.50": "12.50", "1E+3": "1000", "-1.5E+1": "-15", "1E-3": "0.001", "-0": "0", "0E+10": "0", "-0E-5": "0.00000",
		"9999999999999999999999999999999999": "9999999999999999999999999999999999", "1E+64": "1" + strings.Repeat("0", 64),
	} {
		got, err := stored(t, text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got.String(), text)
		assert.Equal(t, Decimal, got.Kind())
	}
	for _, text := range []string{"0E+6000", "0E-6000", "-0E+6111"} {
		got, err := stored(t, text)
		require.NoError(t, err, text)
		assert.Zero(t, got.Cmp(Zero(Decimal)), "zero is zero, whatever its exponent")
		assert.Equal(t, "d0", got.Canonical())
	}
	for _, text := range []string{"NaN", "Infinity", "-Infinity", "1E+65", "1E-65", "1E+6111", "1E-6176"} {
		_, err := stored(t, text)
		require.Error(t, err, text)
	}
	for _, value := range []any{5.0, math.NaN(), math.Inf(1), "5", true, bson.Null{}, bson.M{}, bson.A{int64(5)},
		bson.DateTime(5), bson.MinKey{}, bson.Timestamp{T: 5}} {
		_, err := FromBSON(raw(t, value))
		require.Error(t, err, "%v", value)
	}
	for _, kind := range []bson.Type{bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128} {
		for _, data := range [][]byte{nil, {}, {1, 2, 3}} {
			_, err := FromBSON(bson.RawValue{Type: kind, Value: data})
			require.Error(t, err, "%s of %d bytes", kind, len(data))
		}
	}
	_, err := FromBSON(bson.RawValue{})
	require.Error(t, err)
}

// Cmp compares by value, across kinds and notations.
func TestCmp(t *testing.T) {
	t.Parallel()
	large, err := stored(t, "1E+20")
	require.NoError(t, err)
	sorted := [][]Amount{
		{decimal(t, "-1000000000000000000000")},
		{Units(math.MinInt64), Units(math.MinInt64).Decimal()},
		{Units(-2), decimal(t, "-2.000")},
		{decimal(t, "-1.5"), decimal(t, "-1.50")},
		{decimal(t, "-0.000000000001")},
		{{}, Units(0), decimal(t, "0"), decimal(t, "0.000"), decimal(t, "-0")},
		{decimal(t, "0.000000000001")},
		{Units(1), decimal(t, "1"), decimal(t, "1.0"), decimal(t, "1.000000000000")},
		{decimal(t, "9.999999999999")},
		{Units(10), decimal(t, "10")},
		{Units(math.MaxInt64)},
		{large, decimal(t, "100000000000000000000.00")},
	}
	for i, equal := range sorted {
		for j, others := range sorted {
			for _, a := range equal {
				for _, b := range others {
					want := max(-1, min(1, i-j))
					assert.Equal(t, want, a.Cmp(b), "%s and %s", a, b)
					same := a.Canonical() == b.Canonical()
					assert.Equal(t, want == 0 && a.Kind() == b.Kind(), same, "%s and %s", a, b)
				}
			}
		}
	}
	for i, equal := range sorted {
		for _, a := range equal {
			assert.Equal(t, max(-1, min(1, i-5)), a.Sign(), a)
		}
	}
}

// A sum is exact, or there is an error.
func TestAdd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b Amount
		want string
	}{
		{Units(2), Units(-5), "-3"},
		{Units(math.MaxInt64), Units(math.MinInt64), "-1"},
		{Units(math.MaxInt64 - 1), Units(1), "9223372036854775807"},
		{Units(math.MaxInt64), Units(1), ""},
		{Units(math.MinInt64), Units(-1), ""},
		{Units(1), decimal(t, "1"), ""},
		{decimal(t, "1"), Units(1), ""},
		{decimal(t, "1.5"), decimal(t, "-1.50"), "0.00"},
		{decimal(t, "0.1"), decimal(t, "0.2"), "0.3"},
		{decimal(t, "999999999999999999999.999999999999"), decimal(t, "0.000000000001"), "1000000000000000000000.000000000000"},
		{decimal(t, "9999999999999999999999.999999999999"), decimal(t, "0.000000000001"), "10000000000000000000000.00000000000"},
		{decimal(t, "9999999999999999999999.999999999999"), decimal(t, "0.000000000002"), ""},
		{MaxBalance(Decimal), Max(Decimal), "1000999999999999999999.999999999998"},
	} {
		for _, pair := range [][2]Amount{{row.a, row.b}, {row.b, row.a}} {
			before := pair
			sum, err := pair[0].Add(pair[1])
			assert.Equal(t, before, pair)
			if row.want == "" {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, row.want, sum.String())
			assert.Equal(t, row.a.Kind(), sum.Kind())
		}
	}
}

// A difference is exact, or there is an error.
func TestSub(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b Amount
		want string
	}{
		{Units(2), Units(5), "-3"},
		{Units(-1), Units(math.MinInt64), "9223372036854775807"},
		{Units(0), Units(math.MinInt64), ""},
		{Units(math.MinInt64), Units(math.MinInt64), "0"},
		{Units(math.MinInt64), Units(1), ""},
		{Units(math.MaxInt64), Units(-1), ""},
		{Units(1), decimal(t, "1"), ""},
		{decimal(t, "1"), Units(1), ""},
		{decimal(t, "1.5"), decimal(t, "1.50"), "0.00"},
		{decimal(t, "0.3"), decimal(t, "0.1"), "0.2"},
		{decimal(t, "-9999999999999999999999.999999999999"), decimal(t, "0.000000000002"), ""},
	} {
		difference, err := row.a.Sub(row.b)
		if row.want == "" {
			require.Error(t, err, "%s - %s", row.a, row.b)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, row.want, difference.String())
		assert.Equal(t, row.a.Kind(), difference.Kind())
	}
}

// An amount is an integer by its value, however it is written.
func TestInt64(t *testing.T) {
	t.Parallel()
	large, err := stored(t, "1E+18")
	require.NoError(t, err)
	tooLarge, err := stored(t, "1E+19")
	require.NoError(t, err)
	for _, row := range []struct {
		a     Amount
		n     int64
		whole bool
	}{
		{Amount{}, 0, true}, {Units(math.MinInt64), math.MinInt64, true}, {Units(math.MaxInt64), math.MaxInt64, true},
		{decimal(t, "0.00"), 0, true}, {decimal(t, "12.00"), 12, true}, {decimal(t, "-12"), -12, true},
		{decimal(t, "12.50"), 0, false}, {decimal(t, "-0.000000000001"), 0, false},
		{decimal(t, "9223372036854775807.000"), math.MaxInt64, true}, {decimal(t, "9223372036854775808"), 0, false},
		{decimal(t, "-9223372036854775808.0"), math.MinInt64, true}, {decimal(t, "-9223372036854775809"), 0, false},
		{large, 1e18, true}, {tooLarge, 0, false},
	} {
		n, whole := row.a.Int64()
		assert.Equal(t, row.n, n, row.a)
		assert.Equal(t, row.whole, whole, row.a)
	}
}

// The limits keep every sum on the server exact, and are those of the documentation.
func TestLimits(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "281474976710656", Max(Whole).String())
	assert.Equal(t, "4611686018427387904", MaxBalance(Whole).String())
	assert.Equal(t, "999999999999999999.999999999999", Max(Decimal).String())
	assert.Equal(t, "999999999999999999999.999999999999", MaxBalance(Decimal).String())
	assert.Equal(t, "9223372036854775807", MaxExact(Whole).String())
	assert.Equal(t, "9999999999999999999999.999999999999", MaxExact(Decimal).String())
	for _, kind := range []Kind{Whole, Decimal} {
		assert.Equal(t, kind, MaxExact(kind).Kind())
		assert.Equal(t, kind, Zero(kind).Kind())
		assert.Zero(t, Zero(kind).Sign())
		least := Units(1)
		if kind == Decimal {
			least = decimal(t, "0.000000000001")
		}
		for _, limit := range []Amount{Max(kind), MaxBalance(kind)} {
			over, err := limit.Add(least)
			require.NoError(t, err)
			under, err := limit.Add(least.Neg())
			require.NoError(t, err)
			for _, a := range []Amount{limit, under, Zero(kind)} {
				assert.True(t, a.Within(limit), a)
				assert.True(t, a.Neg().Within(limit), a.Neg())
			}
			assert.False(t, over.Within(limit), over)
			assert.False(t, over.Neg().Within(limit), over.Neg())
		}
		_, err := MaxBalance(kind).Add(Max(kind))
		require.NoError(t, err, "a credit in flight must fit above the largest balance")
	}
	assert.False(t, Units(math.MinInt64).Within(MaxBalance(Whole)), "it has no negative")
	assert.False(t, Units(math.MinInt64).Within(Max(Whole)))
}

// Places counts the digits after the point by value: trailing zeros don't count.
func TestPlaces(t *testing.T) {
	t.Parallel()
	large, err := stored(t, "1E+20")
	require.NoError(t, err)
	assert.Zero(t, large.Places())
	assert.Zero(t, Units(5).Places())
	for text, want := range map[string]int{"1": 0, "1.0": 0, "0.000000000001": 12, "-12.50": 1, "0.000": 0, "100": 0, "10.010": 2} {
		assert.Equal(t, want, decimal(t, text).Places(), text)
	}
}

// Every encoding of an amount decodes to the same value, of the same kind.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	amounts := []Amount{{}, Units(5), Units(-5), Units(math.MaxInt64), Units(math.MinInt64), Max(Decimal),
		MaxBalance(Decimal).Neg(), Zero(Decimal), Units(7).Decimal()}
	for _, text := range []string{"0.00", "12", "12.50", "-0.000000000001", "-1000", "100.000000000000"} {
		amounts = append(amounts, decimal(t, text))
	}
	type holder struct {
		A Amount
		P *Amount `json:",omitempty" bson:",omitempty"`
	}
	for _, a := range amounts {
		check := func(got Amount, err error) {
			t.Helper()
			require.NoError(t, err, a)
			assert.Equal(t, a.Canonical(), got.Canonical())
			assert.Equal(t, a.Kind(), got.Kind())
		}
		var got holder
		encoded, err := json.Marshal(holder{a, &a})
		require.NoError(t, err)
		check(got.A, func() error { err := json.Unmarshal(encoded, &got); return err }())
	}
	for _, a := range amounts {
		var fromJSON, fromBSON holder
		encoded, err := json.Marshal(holder{a, &a})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(encoded, &fromJSON), "%s", encoded)
		document, err := bson.Marshal(holder{a, &a})
		require.NoError(t, err)
		require.NoError(t, bson.Unmarshal(document, &fromBSON))
		text, err := a.MarshalText()
		require.NoError(t, err)
		var fromText Amount
		require.NoError(t, fromText.UnmarshalText(text), "%s", text)
		for _, got := range []Amount{fromJSON.A, *fromJSON.P, fromBSON.A, *fromBSON.P, fromText} {
			assert.Equal(t, a.Canonical(), got.Canonical())
			assert.Equal(t, a.Kind(), got.Kind())
		}
		assert.Equal(t, a, fromBSON.A, "to the digit")
	}
}
