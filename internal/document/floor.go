package document

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
)

// Floor is the least balance that a debit may leave.
type Floor struct {
	// Stored is the field's value, the zero value where there is none.
	Stored bson.RawValue
	// Amount is the floor, zero where none is stored.
	Amount money.Amount
	// None says that the account may go down to the limit of what is stored.
	None bool
	// Odd says that the value is neither a number nor the mark for no floor.
	Odd bool
}

// NoFloor is stored in the floor's field of an account that may go as low as a balance
// can. MinKey stands below all numbers.
func NoFloor() any { return bson.MinKey{} }

// FloorOf reads the value of a floor's field.
func FloorOf(stored bson.RawValue) Floor {
	if stored.Type == bson.TypeMinKey {
		return Floor{Stored: stored, None: true}
	}
	amount, err := money.FromBSON(stored)
	return Floor{Stored: stored, Amount: amount, Odd: err != nil}
}

// Bounds are the least and the largest balance with which prepares can be made.
type Bounds struct {
	Low, High money.Amount
	// Known is false where the floor can't be understood: no balance lies between the
	// bounds then.
	Known bool
	// TooHigh says that a debit leaves no balance above the floor, however large it is:
	// none lies between the bounds, either.
	TooHigh bool
}

// Bounds returns the bounds for prepares that take so much in all, and of whose credits
// the largest is this one, after so much was paid in.
// A balance that credits in flight have carried beyond the limit can't be credited any
// more, and is debited like any other: otherwise the money would never come out again.
func (f Floor) Bounds(taken, paid, largest money.Amount) Bounds {
	limit := money.MaxBalance(taken.Kind())
	nothing := Bounds{Low: limit, High: limit.Neg()}
	low, high := limit.Neg(), limit
	if largest.Sign() == 0 {
		high = money.MaxExact(taken.Kind())
	}
	high, err := subtract(high, paid, largest)
	if err != nil {
		return nothing
	}
	if taken.Sign() == 0 {
		return Bounds{Low: low, High: high, Known: true}
	}
	floor, err := f.Above(low)
	if err != nil {
		return nothing
	}
	if low, err = subtract(floor, paid, taken.Neg()); err != nil {
		nothing.TooHigh = floor.Cmp(limit) > 0 // or it has too many places
		nothing.Known = nothing.TooHigh
		return nothing
	}
	return Bounds{Low: low, High: high, Known: true}
}

// BoundsOf returns the bounds for the prepare of one amount.
func (f Floor) BoundsOf(amount money.Amount) Bounds {
	none := money.Zero(amount.Kind())
	if amount.Sign() > 0 {
		return f.Bounds(none, none, amount)
	}
	return f.Bounds(amount.Neg(), none, none)
}

// Judge compares a balance with the bounds of an amount's prepare. It reports whether the
// balance is an exact number of the amount's kind, whether there is enough money, and
// whether the balance stays within its limits.
func (b Bounds) Judge(stored bson.RawValue, amount money.Amount) (kind, funds, within bool) {
	balance, err := money.FromBSON(stored)
	if err != nil || !b.Known || balance.Kind() != amount.Kind() || balance.Places() > money.MaxPlaces {
		return false, true, true
	}
	if b.TooHigh {
		return true, false, true
	}
	aboveLow, belowHigh := balance.Cmp(b.Low) >= 0, balance.Cmp(b.High) <= 0
	if amount.Sign() > 0 {
		return true, true, aboveLow && belowHigh
	}
	return true, aboveLow, belowHigh
}

func subtract(from money.Amount, amounts ...money.Amount) (money.Amount, error) {
	for _, amount := range amounts {
		var err error
		if from, err = from.Add(amount.Neg()); err != nil {
			return from, err
		}
	}
	return from, nil
}

// Above returns the floor, or the least balance that can be stored where that is higher.
func (f Floor) Above(least money.Amount) (money.Amount, error) {
	switch {
	case f.None:
		return least, nil
	case f.Odd:
		return least, errors.New("the floor is no exact number")
	}
	amount := f.Amount
	if amount.Kind() == money.Whole && least.Kind() == money.Decimal {
		amount = amount.Decimal() // a whole floor may stand under a decimal balance
	}
	if amount.Kind() != least.Kind() {
		return least, errors.New("the floor is a decimal and the balance is whole")
	}
	if amount.Cmp(least) < 0 {
		return least, nil
	}
	return amount, nil
}
