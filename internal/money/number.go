package money

import (
	"cmp"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// number is an amount in two machine words: coefficient · 10^exponent.
// Arithmetic with numbers allocates nothing.
// What doesn't fit is left to math/big.
type number struct {
	negative  bool   // never for zero
	high, low uint64 // the coefficient without its sign; below 2^113
	exponent  int
}

// The largest coefficient of a Decimal128 is 10^34 - 1.
const (
	largestHigh     = 0x1ed09bead87c0
	largestLow      = 0x378d8e63ffffffff
	coefficientBits = 49 // of the higher word
)

// number returns the amount as a number, and false where it isn't one that is usual.
func (a Amount) number() (number, bool) {
	if a.kind == Whole {
		n := number{negative: a.units < 0, low: uint64(a.units)}
		if n.negative {
			n.low = -n.low
		}
		return n, true
	}
	high, low := a.decimal.GetBytes()
	n := number{high: high & (1<<coefficientBits - 1), low: low}
	n.exponent = int(high>>coefficientBits&(1<<14-1)) + bson.MinDecimal128Exp
	n.negative = high>>63 == 1 && !n.isZero()
	// In this place infinity, what is not a number, and what has more bits, have an
	// exponent above all others.
	return n, max(n.exponent, -n.exponent) <= maxStoredExponent
}

// decimal returns the number as an amount, and false where it has too many digits.
func (n number) decimal() (Amount, bool) {
	high := n.high | uint64(n.exponent-bson.MinDecimal128Exp)<<coefficientBits
	if n.negative {
		high |= 1 << 63
	}
	fits := n.high < largestHigh || n.high == largestHigh && n.low <= largestLow
	return Amount{kind: Decimal, decimal: bson.NewDecimal128(high, n.low)}, fits
}

func (n number) isZero() bool { return n.high == 0 && n.low == 0 }

func (n number) sign() int {
	switch {
	case n.isZero():
		return 0
	case n.negative:
		return -1
	}
	return 1
}

func (n number) neg() number {
	n.negative = !n.negative && !n.isZero()
	return n
}

// times10 returns the same value with an exponent that is smaller by some places, and
// false where the coefficient becomes too large.
func (n number) times10(places int) (number, bool) {
	n.exponent -= places
	if n.isZero() {
		return n, true
	}
	for range places {
		carry, low := bits.Mul64(n.low, 10)
		n.high, n.low = n.high*10+carry, low
		if n.high >= 1<<coefficientBits {
			return n, false
		}
	}
	return n, true
}

// atOneExponent returns two numbers at a common exponent, the smaller one.
func atOneExponent(a, b Amount) (x, y number, ok bool) {
	x, isX := a.number()
	y, isY := b.number()
	if !isX || !isY {
		return x, y, false
	}
	if x.exponent < y.exponent {
		y, ok = y.times10(y.exponent - x.exponent)
	} else {
		x, ok = x.times10(x.exponent - y.exponent)
	}
	return x, y, ok
}

// cmpSize compares two coefficients without their signs.
func (n number) cmpSize(m number) int {
	return cmp.Or(cmp.Compare(n.high, m.high), cmp.Compare(n.low, m.low))
}

// cmp compares two numbers at one exponent.
func (n number) cmp(m number) int {
	if n.negative != m.negative || n.isZero() || m.isZero() {
		return cmp.Compare(n.sign(), m.sign())
	}
	return n.sign() * n.cmpSize(m)
}

// add returns the sum of two numbers at one exponent.
func (n number) add(m number) number {
	if n.negative == m.negative {
		low, carry := bits.Add64(n.low, m.low, 0)
		n.high, n.low = n.high+m.high+carry, low
		return n
	}
	if n.cmpSize(m) < 0 {
		n, m = m, n
	}
	low, borrow := bits.Sub64(n.low, m.low, 0)
	n.high, n.low = n.high-m.high-borrow, low
	n.negative = n.negative && !n.isZero()
	return n
}
