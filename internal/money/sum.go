package money

import (
	"math/big"
)

// Sum adds up any number of amounts of both kinds, exactly. The zero value is the sum of none.
type Sum struct {
	units    big.Int
	decimals big.Int // times 10^places
	places   int
	exact    bool // there is a decimal among them
}

// Add adds an amount.
func (s *Sum) Add(a Amount) { s.add(a.parts()); s.exact = s.exact || a.kind == Decimal }

// Sub takes an amount off.
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

// add adds coefficient · 10^exponent; the coefficient is the sum's from then on.
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

// total returns coefficient and exponent of the sum.
func (s *Sum) total() (*big.Int, int) {
	units := scale(new(big.Int).Set(&s.units), s.places)
	return units.Add(units, &s.decimals), -s.places
}

// Sign returns -1, 0 or +1.
func (s *Sum) Sign() int {
	coefficient, _ := s.total()
	return coefficient.Sign()
}

// Amount returns the sum: as units if all were and an int64 holds it, else as a decimal. It fails where the 34 digits of a Decimal128
// don't hold it.
func (s *Sum) Amount() (Amount, error) {
	coefficient, exponent := s.total()
	if !s.exact && coefficient.IsInt64() {
		return Units(coefficient.Int64()), nil
	}
	return exact(coefficient, exponent)
}

// String returns the number in plain notation.
func (s *Sum) String() string { return plain(s.total()) }
