package transfer

import "github.com/mongotransfer/transfer/internal/money"

// Amount is an exact number, never a float: whole units, stored as int64, or a decimal,
// stored as Decimal128.
// The two kinds are never mixed in one transfer.
// The zero value is Units(0).
//
// Compare amounts by Cmp.
// The operator == also compares how they were written: 1.0 and 1.00 are different Amounts
// of the same value.
//
// Units move up to 2^48 at a time between balances of up to 2^62.
// Decimals have at most 12 digits behind the point, move below 10^18 at a time, between
// balances below 10^21.
type Amount struct{ exact money.Amount }

// Units returns a whole number of units: cents, points, pieces.
func Units(n int64) Amount { return Amount{money.Units(n)} }

// ParseDecimal reads a decimal in plain notation, like -12.50, with at most 12 digits
// behind the point.
// The digits are kept as they are written.
func ParseDecimal(text string) (Amount, error) {
	exact, err := money.Parse(text)
	if err != nil {
		return Amount{}, invalid("%w", err)
	}
	return Amount{exact}, nil
}

// String returns the number in plain notation.
func (a Amount) String() string { return a.exact.String() }

// Cmp compares by value, even across kinds: -1, 0 or +1.
func (a Amount) Cmp(b Amount) int { return a.exact.Cmp(b.exact) }

// Neg returns the amount with the other sign.
// Only Units(math.MinInt64), far beyond what can be moved, stays as it is.
func (a Amount) Neg() Amount { return Amount{a.exact.Neg()} }

// IsZero reports whether the amount is 0.
func (a Amount) IsZero() bool { return a.exact.Sign() == 0 }

// MarshalBSONValue writes an int64 or a Decimal128.
func (a Amount) MarshalBSONValue() (byte, []byte, error) { return a.exact.MarshalBSONValue() }

// UnmarshalBSONValue reads an int32, an int64 or a finite Decimal128.
// A double is an error.
func (a *Amount) UnmarshalBSONValue(t byte, data []byte) error {
	return a.exact.UnmarshalBSONValue(t, data)
}

// MarshalJSON writes units as a number and decimals as a string: 6000, "12.50".
func (a Amount) MarshalJSON() ([]byte, error) { return a.exact.MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes.
// A number with a point is an error: it might have been a float.
func (a *Amount) UnmarshalJSON(data []byte) error { return a.exact.UnmarshalJSON(data) }

// MarshalText writes units as digits, and decimals always with a point.
func (a Amount) MarshalText() ([]byte, error) { return a.exact.MarshalText() }

// UnmarshalText reads digits as units, and a number with a point as a decimal.
func (a *Amount) UnmarshalText(text []byte) error { return a.exact.UnmarshalText(text) }
