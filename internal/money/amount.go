// Package money holds exact amounts: whole units as int64, or decimals as Decimal128, and
// never a float.
package money

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind is one of the two kinds of amounts.
// Amounts of different kinds are never added to each other.
type Kind uint8

// The kinds.
const (
	Whole   Kind = iota // stored as int64
	Decimal             // stored as Decimal128
)

// MaxPlaces is the largest number of digits after the point of a decimal.
const MaxPlaces = 12

// Amount is an exact number.
// The zero value is 0 units.
type Amount struct {
	kind    Kind
	units   int64
	decimal bson.Decimal128
}

// Units returns an amount of n whole units.
func Units(n int64) Amount { return Amount{units: n} }

func errOutOfRange() error { return errors.New("the number is too large to be exact") }

// Parse reads a decimal in plain notation: an optional sign, digits, and at most 12
// digits after a point. Zeros behind those are dropped: a balance that was stored by hand
// may be written with them.
func Parse(text string) (Amount, error) {
	digits := text
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		digits = digits[1:]
	}
	whole, fraction, point := strings.Cut(digits, ".")
	if !allDigits(whole) || (point && !allDigits(fraction)) {
		return Amount{}, errors.New("a decimal is written like 12.50")
	}
	if len(fraction) > MaxPlaces {
		if strings.Trim(fraction[MaxPlaces:], "0") != "" {
			return Amount{}, fmt.Errorf("a decimal has at most %d digits behind the point", MaxPlaces)
		}
		fraction = fraction[:MaxPlaces]
	}
	if len(strings.TrimLeft(whole, "0")) > maxWholeDigits {
		return Amount{}, fmt.Errorf("a decimal has at most %d digits before the point", maxWholeDigits)
	}
	coefficient, _ := new(big.Int).SetString(whole+fraction, 10)
	if text[0] == '-' {
		coefficient.Neg(coefficient)
	}
	return exact(coefficient, -len(fraction))
}

// maxWholeDigits leaves room for MaxPlaces in the 34 digits of a Decimal128.
const maxWholeDigits = 22

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// exact returns coefficient · 10^exponent.
func exact(coefficient *big.Int, exponent int) (Amount, error) {
	d, ok := bson.ParseDecimal128FromBigInt(coefficient, exponent)
	if !ok {
		return Amount{}, errOutOfRange()
	}
	return Amount{kind: Decimal, decimal: d}, nil
}

// Decimal returns the same number as a decimal.
func (a Amount) Decimal() Amount {
	if n, usual := a.number(); usual {
		decimal, _ := n.decimal() // any int64 fits, and so does what is stored
		return decimal
	}
	coefficient, exponent := a.parts()
	decimal, _ := exact(coefficient, exponent)
	return decimal
}

// Zero returns 0 of a kind.
func Zero(kind Kind) Amount {
	if kind == Decimal {
		return Units(0).Decimal()
	}
	return Units(0)
}

// Kind returns the amount's kind.
func (a Amount) Kind() Kind { return a.kind }

// parts returns the coefficient and the exponent of the value, which is coefficient ·
// 10^exponent.
func (a Amount) parts() (*big.Int, int) {
	if a.kind == Whole {
		return big.NewInt(a.units), 0
	}
	coefficient, exponent, err := a.decimal.BigInt()
	if err != nil {
		// NaN and Infinity never become amounts.
		return new(big.Int), 0
	}
	return coefficient, exponent
}

// align returns both coefficients at a common exponent.
func align(a, b Amount) (x, y *big.Int, exponent int) {
	x, xe := a.parts()
	y, ye := b.parts()
	exponent = min(xe, ye)
	return scale(x, xe-exponent), scale(y, ye-exponent), exponent
}

func scale(n *big.Int, places int) *big.Int {
	if places == 0 {
		return n
	}
	return n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))
}

// Cmp compares two amounts by value, even of different kinds, and returns -1, 0 or +1.
func (a Amount) Cmp(b Amount) int {
	if a.kind == Whole && b.kind == Whole {
		return cmp.Compare(a.units, b.units)
	}
	if x, y, usual := atOneExponent(a, b); usual {
		return x.cmp(y)
	}
	x, y, _ := align(a, b)
	return x.Cmp(y)
}

// Sign returns the sign of the amount: -1, 0 or +1.
func (a Amount) Sign() int {
	if a.kind == Whole {
		return cmp.Compare(a.units, 0)
	}
	if n, usual := a.number(); usual {
		return n.sign()
	}
	coefficient, _ := a.parts()
	return coefficient.Sign()
}

// Neg returns the amount with the opposite sign.
// The smallest int64 has no opposite and stays as it is; it is beyond all limits.
func (a Amount) Neg() Amount {
	if a.kind == Whole {
		return Units(-a.units)
	}
	if n, usual := a.number(); usual {
		negated, _ := n.neg().decimal() // it has as many digits
		return negated
	}
	coefficient, exponent := a.parts()
	negated, _ := exact(coefficient.Neg(coefficient), exponent)
	return negated
}

// Add returns the sum of two amounts of one kind.
// It fails if the sum can't be stored exactly.
func (a Amount) Add(b Amount) (Amount, error) {
	switch {
	case a.kind != b.kind:
		return Amount{}, errKinds()
	case a.kind == Decimal:
		return a.addDecimal(b)
	}
	sum := a.units + b.units
	if (sum > a.units) != (b.units > 0) { // it has wrapped around
		return Amount{}, errOutOfRange()
	}
	return Units(sum), nil
}

// Sub returns the difference of two amounts of one kind.
// It fails if the difference can't be stored exactly.
func (a Amount) Sub(b Amount) (Amount, error) {
	switch {
	case a.kind != b.kind:
		return Amount{}, errKinds()
	case a.kind == Decimal:
		return a.addDecimal(b.Neg())
	}
	difference := a.units - b.units
	if (difference < a.units) != (b.units > 0) { // it has wrapped around
		return Amount{}, errOutOfRange()
	}
	return Units(difference), nil
}

func errKinds() error { return errors.New("whole units and decimals can't be added") }

// Like returns an amount as it is added to another one: as it is, or 0 of the other's
// kind in place of a 0 of its own.
// So a sum may begin with a zero of either kind.
// Of two zeros the units become a decimal.
func (a Amount) Like(b Amount) Amount {
	if a.kind != b.kind && a.Sign() == 0 && (b.kind == Decimal || b.Sign() != 0) {
		return Zero(b.kind)
	}
	return a
}

// Int64 returns the number as an integer, and whether it is one that an int64 holds: 12,
// true for 12.00, and 0, false for 12.50.
func (a Amount) Int64() (n int64, whole bool) {
	if a.kind == Whole {
		return a.units, true
	}
	coefficient, exponent := a.parts()
	if exponent > 0 {
		coefficient = scale(coefficient, exponent)
	} else {
		var rest big.Int
		coefficient.QuoRem(coefficient, scale(big.NewInt(1), -exponent), &rest)
		if rest.Sign() != 0 {
			return 0, false
		}
	}
	if !coefficient.IsInt64() {
		return 0, false
	}
	return coefficient.Int64(), true
}

func (a Amount) addDecimal(b Amount) (Amount, error) {
	if x, y, usual := atOneExponent(a, b); usual {
		if sum, fits := x.add(y).decimal(); fits {
			return sum, nil
		}
	}
	x, y, exponent := align(a, b)
	return exact(x.Add(x, y), exponent)
}

// String returns the number in plain notation, with the digits after the point that it
// was made with.
func (a Amount) String() string {
	if a.kind == Whole {
		return strconv.FormatInt(a.units, 10)
	}
	return plain(a.parts())
}

// plain formats coefficient · 10^exponent.
func plain(coefficient *big.Int, exponent int) string {
	if exponent >= 0 {
		return scale(coefficient, exponent).String()
	}
	sign := ""
	if coefficient.Sign() < 0 {
		sign = "-"
		coefficient.Neg(coefficient)
	}
	digits := coefficient.String()
	if missing := 1 - exponent - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) + exponent
	return sign + digits[:point] + "." + digits[point:]
}

// Canonical returns a text that is the same for equal amounts of one kind, and differs
// for all others.
func (a Amount) Canonical() string { return string(a.AppendCanonical(make([]byte, 0, 24))) }

// AppendCanonical appends the canonical text.
func (a Amount) AppendCanonical(to []byte) []byte {
	if a.kind == Whole {
		return strconv.AppendInt(append(to, 'u'), a.units, 10)
	}
	text := a.String()
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return append(append(to, 'd'), text...)
}
