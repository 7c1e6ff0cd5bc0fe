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
// Add and Sub are exact, or fail.
//
// Units move up to 2^48 at a time between balances of up to 2^62.
// Decimals have at most 12 digits behind the point, move below 10^18 at a time, between
// balances below 10^21.
//
// In JSON units are a number and decimals a string.
// JavaScript, and every other reader that takes a number for a double, rounds integers
// beyond 2^53.
// What a transfer moves never gets there.
// A balance or a sum can, up to 2^63: send that to such a reader as its String, and read
// it back by UnmarshalText, which takes digits for units.
type Amount struct{ exact money.Amount }

// Units returns a whole number of units: cents, points, pieces.
func Units(n int64) Amount { return Amount{money.Units(n)} }

// ParseDecimal reads a decimal in plain notation, like -12.50, with at most 12 digits
// behind the point.
// The digits are kept as they are written, but for zeros behind those 12.
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

// Sign returns the sign of the amount: -1, 0 or +1.
func (a Amount) Sign() int { return a.exact.Sign() }

// Int64 returns the amount as an integer, and whether it is one that an int64 holds.
// The value counts, not the kind: 12.00 is 12, true.
// For 12.50, or what is too large, it returns 0, false.
func (a Amount) Int64() (n int64, whole bool) { return a.exact.Int64() }

// Add returns the sum.
// A zero of either kind may be added to anything, so that a sum begins with
//
//	var sum Amount
//
// Two kinds otherwise are ErrAmountKind.
// What can't be stored exactly is ErrOverflow: units beyond an int64, decimals of more
// than 34 digits.
// A sum may be larger than what a transfer moves, or an account holds.
func (a Amount) Add(b Amount) (Amount, error) { return combined(a, b, money.Amount.Add) }

// Sub returns the difference, by the rules of Add.
func (a Amount) Sub(b Amount) (Amount, error) { return combined(a, b, money.Amount.Sub) }

// combined returns the result of an operation on two amounts of one kind.
func combined(a, b Amount, operation func(a, b money.Amount) (money.Amount, error)) (Amount, error) {
	x, y := a.exact.Like(b.exact), b.exact.Like(a.exact)
	result, err := operation(x, y)
	switch {
	case err == nil:
		return Amount{result}, nil
	case x.Kind() != y.Kind():
		return Amount{}, &sumError{ErrAmountKind, err}
	}
	return Amount{}, &sumError{ErrOverflow, err}
}

// sumError says why two amounts have no sum.
type sumError struct{ is, cause error }

// Error returns the cause alone: the text of the other error is about a balance.
func (e *sumError) Error() string { return e.cause.Error() }

// Unwrap returns the error that it is.
func (e *sumError) Unwrap() error { return e.is }

// MarshalBSONValue writes an int64 or a Decimal128.
func (a Amount) MarshalBSONValue() (byte, []byte, error) { return a.exact.MarshalBSONValue() }

// UnmarshalBSONValue reads an int32, an int64 or a finite Decimal128.
// A double is an error.
func (a *Amount) UnmarshalBSONValue(t byte, data []byte) error {
	return a.exact.UnmarshalBSONValue(t, data)
}

// MarshalJSON writes units as a number and decimals as a string: 6000, "12.50".
// JavaScript can't hold all such numbers: see [Amount].
func (a Amount) MarshalJSON() ([]byte, error) { return a.exact.MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes: a number as units, and a string as a
// decimal, even where it has no point.
// A number with a point or an exponent is an error: it might have been a float.
func (a *Amount) UnmarshalJSON(data []byte) error { return a.exact.UnmarshalJSON(data) }

// MarshalText writes units as digits, and decimals always with a point.
func (a Amount) MarshalText() ([]byte, error) { return a.exact.MarshalText() }

// UnmarshalText reads digits as units, and a number with a point as a decimal.
func (a *Amount) UnmarshalText(text []byte) error { return a.exact.UnmarshalText(text) }
