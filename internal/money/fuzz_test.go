package money

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// value returns an amount as a number of math/big, which has no limits.
func value(a Amount) *big.Rat {
	coefficient, exponent := a.parts()
	return scaled(coefficient, exponent)
}

func scaled(coefficient *big.Int, exponent int) *big.Rat {
	number := new(big.Rat).SetInt(coefficient)
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil))
	if exponent < 0 {
		return number.Quo(number, power)
	}
	return number.Mul(number, power)
}

func fromText(t *testing.T, text string) *big.Rat {
	t.Helper()
	number, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return number
}

// requireSame requires that an amount is the given number, of the given kind.
func requireSame(t *testing.T, kind Kind, want *big.Rat, got Amount) {
	t.Helper()
	require.Equal(t, kind, got.Kind())
	require.Zero(t, want.Cmp(value(got)), "%s became %s", want.RatString(), got)
}

// requireRoundTrips requires that an amount is the same number of the same kind after
// each encoding, and that others read its texts as that number too.
func requireRoundTrips(t *testing.T, amount Amount) {
	t.Helper()
	want := value(amount)
	requireSame(t, amount.Kind(), want, amount)
	require.Zero(t, want.Cmp(fromText(t, amount.String())), amount)
	require.Zero(t, want.Cmp(fromText(t, amount.Canonical()[1:])), amount)

	var fromBSON struct{ A Amount }
	document, err := bson.Marshal(bson.D{{Key: "a", Value: amount}})
	require.NoError(t, err)
	require.NoError(t, bson.Unmarshal(document, &fromBSON))
	require.Equal(t, amount, fromBSON.A, "to the digit")

	// Text is read if it has no more digits than an amount may have, and refused as too
	// long otherwise.
	readable := amount.Kind() == Whole || decimals().MatchString(amount.String())
	var fromJSON, fromText Amount
	encoded, err := json.Marshal(amount)
	require.NoError(t, err)
	err = json.Unmarshal(encoded, &fromJSON)
	require.Equal(t, readable, err == nil, "%s: %v", encoded, err)
	text, err := amount.MarshalText()
	require.NoError(t, err)
	err = fromText.UnmarshalText(text)
	require.Equal(t, readable, err == nil, "%s: %v", text, err)
	if readable {
		requireSame(t, amount.Kind(), want, fromJSON)
		requireSame(t, amount.Kind(), want, fromText)
	}
}

// decimals matches decimals: a sign, at most 22 digits before the point, not counting
// leading zeros, and at most 12 after it, not counting zeros behind those.
func decimals() *regexp.Regexp {
	return regexp.MustCompile(`^[+-]?0*[0-9]{1,22}(\.[0-9]{1,12}0*)?$`)
}

// A rule of one line says whether a text is a decimal.
// Each decimal reads as exactly the number in its text.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0", "-0.00", "-12.50", "+7", "999999999999999999.999999999999", "1e3", "", ".", "-", "1.",
		"NaN", "00012.10", "9999999999999999999999", "99999999999999999999990", "0.0000000000001", "0.1234567890120", "1/3", "1_0", "0x1"} {
		f.Add(seed)
	}
	pattern := decimals()
	f.Fuzz(func(t *testing.T, text string) {
		amount, err := Parse(text)
		require.Equal(t, pattern.MatchString(text), err == nil, "%q: %v", text, err)
		if err != nil {
			require.Zero(t, amount)
			return
		}
		requireSame(t, Decimal, fromText(t, text), amount)
		again, err := Parse(amount.String())
		require.NoError(t, err)
		require.Equal(t, amount, again, "to the digit")
		require.LessOrEqual(t, amount.Places(), MaxPlaces)
		requireRoundTrips(t, amount)
	})
}

// An amount that is read from JSON is the number in it, and is written as the same
// amount.
// Text that is refused changes nothing.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{"0", "-5", `"12.50"`, `"12"`, "12.50", "1e3", "null", `""`, `"\u0031"`, "[5]",
		"9223372036854775807", " 5 ", "-0", `{"a":5}`, `"-9223372036854775808"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		amount := Units(77)
		if err := json.Unmarshal(data, &amount); err != nil {
			require.Equal(t, Units(77), amount)
			return
		}
		var said any
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&said))
		switch said := said.(type) {
		case nil:
			require.Equal(t, Units(77), amount)
		case json.Number:
			requireSame(t, Whole, fromText(t, said.String()), amount)
		case string:
			requireSame(t, Decimal, fromText(t, said), amount)
		default:
			t.Fatalf("%s was read as %s", data, amount)
		}
		requireRoundTrips(t, amount)
	})
}

// A value from the database is an amount if it is an int32, an int64 or a finite decimal
// that can be written out, and then it is that number.
func FuzzFromBSON(f *testing.F) {
	for _, n := range []any{int32(5), int64(math.MinInt64), 5.5, "5", true, bson.Null{}, bson.D{}, bson.DateTime(5), bson.MinKey{}} {
		kind, data, err := bson.MarshalValue(n)
		require.NoError(f, err)
		f.Add(byte(kind), data)
	}
	for _, text := range []string{"12.50", "-0", "1E+64", "1E+65", "1E-64", "1E-65", "0E+6111", "-0E-6176", "NaN", "-Infinity",
		"9.999999999999999999999999999999999E+6144", "9999999999999999999999999999999999", "1E-12", "1.000000000000000000000000000000001"} {
		d, err := bson.ParseDecimal128(text)
		require.NoError(f, err)
		_, data, err := bson.MarshalValue(d)
		require.NoError(f, err)
		f.Add(byte(bson.TypeDecimal128), data)
	}
	f.Add(byte(bson.TypeDecimal128), bytes.Repeat([]byte{0xff}, 16))
	// 10^34 · 10^-20: one digit too many.
	f.Add(byte(bson.TypeDecimal128), binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x378d8e6400000000),
		(6176-20)<<49|0x1ed09bead87c0))
	f.Add(byte(bson.TypeInt64), []byte{1, 2, 3})
	f.Add(byte(0), []byte{})
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		stored := bson.RawValue{Type: bson.Type(kind), Value: data}
		amount, err := FromBSON(stored)
		want, ok := storedNumber(stored)
		require.Equal(t, ok, err == nil, "%s: %v", stored, err)
		if err != nil {
			require.Zero(t, amount)
			return
		}
		wantKind := Whole
		if stored.Type == bson.TypeDecimal128 {
			wantKind = Decimal
		}
		requireSame(t, wantKind, want, amount)
		requireRoundTrips(t, amount)
	})
}

// storedNumber reads a stored number from its bits, and reports whether it can be an
// amount.
func storedNumber(stored bson.RawValue) (*big.Rat, bool) {
	switch {
	case stored.Type == bson.TypeInt32 && len(stored.Value) >= 4:
		return new(big.Rat).SetInt64(int64(int32(binary.LittleEndian.Uint32(stored.Value)))), true
	case stored.Type == bson.TypeInt64 && len(stored.Value) >= 8:
		return new(big.Rat).SetInt64(int64(binary.LittleEndian.Uint64(stored.Value))), true
	case stored.Type == bson.TypeDecimal128 && len(stored.Value) >= 16:
		return storedDecimal(binary.LittleEndian.Uint64(stored.Value[8:]), binary.LittleEndian.Uint64(stored.Value))
	}
	return nil, false
}

// storedDecimal reads the bits of a decimal128 as IEEE 754 defines them: a sign, 14 bits
// of exponent, 113 of the coefficient.
func storedDecimal(high, low uint64) (*big.Rat, bool) {
	if high>>59&0xf == 0xf {
		return nil, false // infinity, or not a number
	}
	if high>>61&3 == 3 {
		// A coefficient of 114 bits is too large for 34 digits, and stands for zero.
		return new(big.Rat), true
	}
	coefficient := new(big.Int).SetUint64(high & (1<<49 - 1))
	coefficient.Or(coefficient.Lsh(coefficient, 64), new(big.Int).SetUint64(low))
	if len(coefficient.String()) > 34 {
		// It stands for zero as well, but not for every reader, so it is not an amount.
		return nil, false
	}
	if high>>63 == 1 {
		coefficient.Neg(coefficient)
	}
	exponent := int(high>>49&(1<<14-1)) - 6176
	if coefficient.Sign() == 0 || max(exponent, -exponent) > maxStoredExponent {
		return new(big.Rat), coefficient.Sign() == 0
	}
	return scaled(coefficient, exponent), true
}

// Sums, differences, signs, comparisons and integers are those of math/big, or there is
// an error.
func FuzzArithmetic(f *testing.F) {
	decimalBits := func(text string) (high, low uint64) {
		d, err := bson.ParseDecimal128(text)
		require.NoError(f, err)
		return d.GetBytes()
	}
	texts := []string{"0", "-0.00", "1.5", "-1.50", "0.000000000001", "999999999999999999.999999999999", "1E+64", "-1E-64",
		"9999999999999999999999999999999999", "1E+20"}
	for i, text := range texts {
		ah, al := decimalBits(text)
		bh, bl := decimalBits(texts[len(texts)-1-i])
		f.Add(true, ah, al, true, bh, bl)
		f.Add(true, ah, al, false, uint64(0), uint64(i))
	}
	units := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, maxUnits, -maxUnits, maxBalanceUnits, -maxBalanceUnits - 1}
	for i, n := range units {
		f.Add(false, uint64(0), uint64(n), false, uint64(0), uint64(units[len(units)-1-i]))
	}
	f.Fuzz(func(t *testing.T, aExact bool, ah, al uint64, bExact bool, bh, bl uint64) {
		a, ok := amountOf(aExact, ah, al)
		if !ok {
			return
		}
		b, ok := amountOf(bExact, bh, bl)
		if !ok {
			return
		}
		requireArithmetic(t, a, b)
		requireArithmetic(t, b, a)
		requireArithmetic(t, a, a)
	})
}

func amountOf(decimal bool, high, low uint64) (Amount, bool) {
	if !decimal {
		return Units(int64(low)), true
	}
	a, err := fromDecimal(bson.NewDecimal128(high, low))
	return a, err == nil
}

func requireArithmetic(t *testing.T, a, b Amount) {
	t.Helper()
	x, y := value(a), value(b)
	require.Equal(t, x.Cmp(y), a.Cmp(b), "%s and %s", a, b)
	require.Equal(t, x.Sign(), a.Sign(), a)
	require.Equal(t, x.Cmp(y) == 0 && a.Kind() == b.Kind(), a.Canonical() == b.Canonical(), "%s and %s", a, b)
	if a != Units(math.MinInt64) { // it has no negative
		requireSame(t, a.Kind(), new(big.Rat).Neg(x), a.Neg())
		requireSame(t, Decimal, x, a.Decimal())
	}
	if b != Units(math.MinInt64) {
		within := new(big.Rat).Abs(x).Cmp(new(big.Rat).Abs(y)) <= 0
		require.Equal(t, within && (y.Sign() >= 0 || x.Sign() == 0 && y.Sign() == 0), a.Within(b), "%s within %s", a, b)
	}
	if a.Kind() == Decimal {
		requireSlowlySame(t, a, b)
	}
	beforeA, beforeB := a, b
	sum, err := a.Add(b)
	requireResult(t, a, b, new(big.Rat).Add(x, y), sum, err)
	difference, err := a.Sub(b)
	requireResult(t, a, b, new(big.Rat).Sub(x, y), difference, err)
	require.Equal(t, [2]Amount{beforeA, beforeB}, [2]Amount{a, b}, "a sum changes what is added up")
	requireLike(t, a, b)
	n, whole := a.Int64()
	require.Equal(t, x.IsInt() && x.Num().IsInt64(), whole, a)
	if whole {
		require.Zero(t, x.Cmp(new(big.Rat).SetInt64(n)), a)
	} else {
		require.Zero(t, n, a)
	}
}

// requireResult requires that the sum or the difference of two amounts is what math/big
// makes of them, or an error where that is no amount of their kind.
func requireResult(t *testing.T, a, b Amount, want *big.Rat, got Amount, err error) {
	t.Helper()
	fits := want.IsInt() && want.Num().IsInt64()
	if a.Kind() == Decimal {
		digits := strings.Trim(strings.ReplaceAll(want.FloatString(maxStoredExponent), ".", ""), "-0")
		fits = len(digits) <= decimalDigits
	}
	require.Equal(t, a.Kind() == b.Kind() && fits, err == nil, "%s and %s: %v", a, b, err)
	if err == nil {
		requireSame(t, a.Kind(), want, got)
	}
}

// requireLike requires that a zero takes the kind of what it is added to, and that
// nothing else changes.
func requireLike(t *testing.T, a, b Amount) {
	t.Helper()
	x, y := a.Like(b), b.Like(a)
	require.Zero(t, a.Cmp(x))
	require.Zero(t, b.Cmp(y))
	require.Equal(t, a.Kind() == b.Kind() || a.Sign() == 0 || b.Sign() == 0, x.Kind() == y.Kind(), "%s and %s", a, b)
	if a.Kind() == b.Kind() || a.Sign() != 0 {
		require.Equal(t, a, x, "to the digit")
	}
}

// requireSlowlySame requires of decimals what math/big makes of them, to the digit and
// the bit.
func requireSlowlySame(t *testing.T, a, b Amount) {
	t.Helper()
	coefficient, exponent := a.parts()
	same, err := exact(coefficient, exponent)
	require.NoError(t, err)
	require.Equal(t, same, a.Decimal())
	negated, err := exact(coefficient.Neg(coefficient), exponent)
	require.NoError(t, err)
	require.Equal(t, negated, a.Neg())
	if b.Kind() != Decimal {
		return
	}
	x, y, exponent := align(a, b)
	want, wantErr := exact(x.Add(x, y), exponent)
	sum, err := a.Add(b)
	require.Equal(t, wantErr, err)
	require.Equal(t, want, sum)
}
