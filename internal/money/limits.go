package money

import (
	"math"
	"strings"
)

// The limits keep every sum that the server makes exact.
//
// Units: an amount is at most 2^48 and a stored balance at most 2^62.
// So even the credits of 2^13 transfers in flight can't carry a balance beyond 2^63.
//
// Decimals: at most 12 places, amounts below 10^18 and balances below 10^21, which are 33
// of the 34 digits of a Decimal128.
//
// Credits in flight from several processes may lead to MaxExact, and none beyond: what
// has no room there waits, which document.Fields.RefuseRounding sees to for decimals.
const (
	maxUnits        = int64(1) << 48
	maxBalanceUnits = int64(1) << 62
	maxDigits       = 18
	maxBalance      = 21
	maxExact        = 22
)

// Max returns the largest amount of a kind that a transfer may move.
func Max(kind Kind) Amount {
	if kind == Whole {
		return Units(maxUnits)
	}
	return nines(maxDigits)
}

// MaxBalance returns the largest balance of a kind.
// The smallest one is its negative.
func MaxBalance(kind Kind) Amount {
	if kind == Whole {
		return Units(maxBalanceUnits)
	}
	return nines(maxBalance)
}

// MaxInFlight is how many transfers one process has in flight on one balance, at most.
const MaxInFlight = 1 << 13

// MaxExact returns the largest balance of a kind that can be stored exactly, with all the
// places that a decimal may have.
func MaxExact(kind Kind) Amount {
	if kind == Whole {
		return Units(math.MaxInt64)
	}
	return nines(maxExact)
}

// nines returns the largest decimal below 10^digits.
func nines(digits int) Amount {
	n, _ := number{low: 1, exponent: digits}.times10(digits + MaxPlaces)
	largest, _ := n.add(number{negative: true, low: 1}).decimal()
	return largest
}

// Within reports whether -limit ≤ a ≤ limit.
func (a Amount) Within(limit Amount) bool {
	return a.Cmp(limit) <= 0 && a.Cmp(limit.Neg()) >= 0
}

// Places returns the number of digits after the point, without trailing zeros.
func (a Amount) Places() int {
	if a.kind == Whole {
		return 0
	}
	_, fraction, _ := strings.Cut(a.String(), ".")
	return len(strings.TrimRight(fraction, "0"))
}
