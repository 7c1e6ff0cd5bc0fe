package money

import (
	"math/big"
)

// Sum adds up any number of amounts of both kinds, exactly.
// The zero value is the sum of no amounts.
type Sum struct {
	units    big.Int
	decimals big.Int // times 10^places
	places   int
	exact    bool // one of the amounts is a decimal
}

// Add adds an amount.
func (s *Sum) Add(a Amount) { s.add(a.parts()); s.exact = s.exact || a.kind == Decimal }

// Sub subtracts an amount.
func (s *Sum) Sub(a Amount) {
	coefficient, exponent := a.parts()
	s.add(coefficient.Neg(coefficient), exponent)
	s.exact = s.exact || a.kind == Decimal
}

// AddSum adds another sum.
func (s *Sum) AddSum(o *Sum) {
	s.units.Add(&s.units, &o.units)
	s.add(new(big.Int).Set(&o.decimals), -o.places)
	s.exact = s.exact || o.exact
}

// add adds coefficient · 10^exponent.
// The coefficient belongs to the sum from then on.
func (s *Sum) add(coefficient *big.Int, exponent int) {
	if exponent == 0 {
		s.units.Add(&s.units, coefficient)
		return
	}
	if more := -exponent - s.places; more > 0 {
		scale(&s.decimals, more)
		s.places += more
	}
	s.decimals.Add(&s.decimals, scale(coefficient, s.places+exponent))
}

// total returns the coefficient and the exponent of the sum.
func (s *Sum) total() (*big.Int, int) {
	units := scale(new(big.Int).Set(&s.units), s.places)
	return units.Add(units, &s.decimals), -s.places
}

// Sign returns the sign of the sum: -1, 0 or +1.
func (s *Sum) Sign() int {
	coefficient, _ := s.total()
	return coefficient.Sign()
}

// Amount returns the sum, in units if all amounts were units and an int64 holds it, and
// otherwise as a decimal.
// It fails if the 34 digits of a Decimal128 don't hold it.
func (s *Sum) Amount() (Amount, error) {
	coefficient, exponent := s.total()
	if !s.exact && coefficient.IsInt64() {
		return Units(coefficient.Int64()), nil
	}
	return exact(coefficient, exponent)
}

// String returns the number in plain notation.
func (s *Sum) String() string { return plain(s.total()) }
