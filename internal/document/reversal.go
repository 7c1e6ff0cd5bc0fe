package document

import (
	"encoding/binary"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// ReversedKey returns the key under which a transfer counts what reversals have moved on
// the leg's account. No name of a ledger has a NUL.
func (l Leg) ReversedKey() string { return MarkerKey(l.Ledger + "\x00" + l.Account) }

// sameAccount reports whether two legs are on one account.
func (l Leg) sameAccount(other Leg) bool {
	return l.Ledger == other.Ledger && l.Account == other.Account
}

// Back returns the movements of a reversal of the whole transfer.
func (t *Transfer) Back() []Leg {
	back := slices.Clone(t.Moved())
	for i := range back {
		back[i].Amount = back[i].Amount.Neg()
	}
	return back
}

// Left returns the movements of a reversal of all that is left of a transfer: none, where
// nothing is.
func (t *Transfer) Left() ([]Leg, error) {
	if t.ReversedBy != "" && t.Reversed == nil {
		return nil, nil
	}
	var left []Leg
	counted := 0
	for _, leg := range t.Back() {
		if stored, err := t.Reversed.LookupErr(leg.ReversedKey()); err == nil {
			counted++
			if err := leg.take(stored); err != nil {
				return nil, fmt.Errorf("%w: what is reversed on account %s: %w", ErrUnreadable, words.Quote(leg.Account), err)
			}
		}
		if leg.Amount.Sign() != 0 {
			left = append(left, leg)
		}
	}
	if counted != len(wire.Elements(t.Reversed)) {
		return nil, fmt.Errorf("%w: something is reversed on an account that it did not move", ErrUnreadable)
	}
	return left, nil
}

// PlanAll makes the transfer the reversal of all that is left of another one, which would
// have moved the whole if all were left.
// Where nothing is left it moves the whole, and will be refused.
func (t *Transfer) PlanAll(whole, left []Leg) {
	t.Legs, t.Whole = whole, nil
	if len(left) > 0 && !Within(whole, left) {
		t.Legs, t.Whole = left, whole
	}
}

// Asked returns the legs that were asked for: those of a reversal of all that is left are
// the whole, whatever was left.
func (t *Transfer) Asked() []Leg {
	if len(t.Whole) > 0 {
		return t.Whole
	}
	return t.Legs
}

// SoundPlan reports whether a transfer that moves less than the whole may do so.
func (t *Transfer) SoundPlan() bool {
	return len(t.Whole) == 0 || t.Reverses != "" && !t.Part && len(t.Legs) > 0 && Within(t.Legs, t.Whole) && t.balanced()
}

// balanced reports whether the legs sum to zero, in each currency.
func (t *Transfer) balanced() bool {
	sums := map[string]money.Amount{}
	for _, leg := range t.Legs {
		currency := t.CurrencyOf(leg)
		sum, known := sums[currency]
		if !known {
			sum = money.Zero(leg.Amount.Kind())
		}
		var err error
		if sums[currency], err = sum.Add(leg.Amount); err != nil {
			return false
		}
	}
	for _, sum := range sums {
		if sum.Sign() != 0 {
			return false
		}
	}
	return true
}

// ReversedAmount returns what was taken back of a transfer between two accounts, zero for
// any other.
func (t *Transfer) ReversedAmount() money.Amount {
	if len(t.Moved()) != 2 {
		return money.Amount{}
	}
	for _, leg := range t.ReversedLegs() {
		if leg.Amount.Sign() > 0 {
			return leg.Amount
		}
	}
	return money.Amount{}
}

// ReversedLegs returns what its reversals have moved, by account: none, where nothing was
// taken back, or what is stored of that can't be read.
func (t *Transfer) ReversedLegs() (legs []Leg) {
	if t.ReversedBy == "" {
		return nil
	}
	left, err := t.Left()
	if err != nil {
		return nil
	}
	for _, leg := range t.withCurrencies(t.Back()) {
		if rest := leg.On(left); rest != nil {
			if leg.Amount, err = leg.Amount.Add(rest.Amount.Neg()); err != nil {
				return nil
			}
		}
		if leg.Amount.Sign() != 0 {
			legs = append(legs, leg)
		}
	}
	return legs
}

// Exceeding returns the first of the legs that is more than what is left of its account's
// part, nil if none is.
func Exceeding(legs, left []Leg) *Leg {
	for i, leg := range legs {
		if rest := leg.On(left); rest == nil || !leg.Within(rest.Amount) {
			return &legs[i]
		}
	}
	return nil
}

// WhollyReversedBy returns the transfer that has taken the last of this one back.
// It is "" while something is left.
func (t *Transfer) WhollyReversedBy() string {
	if t.ReversedBy == "" {
		return ""
	}
	if left, err := t.Left(); err != nil || len(left) > 0 {
		return ""
	}
	return t.ReversedBy
}

// take takes what reversals have moved off the movement of a reversal of all.
func (l *Leg) take(stored bson.RawValue) error {
	moved, err := money.FromBSON(stored)
	if err != nil {
		return err
	}
	if moved.Kind() != l.Amount.Kind() || moved.Sign() != 0 && !(Leg{Amount: moved}).Within(l.Amount) {
		return fmt.Errorf("%s is no part of %s", moved, l.Amount)
	}
	l.Amount, err = l.Amount.Add(moved.Neg())
	return err
}

// Within reports whether the movement is a part of an amount, or all of it.
func (l Leg) Within(amount money.Amount) bool {
	sign := l.Amount.Sign()
	return l.Amount.Kind() == amount.Kind() && sign != 0 && sign == amount.Sign() && l.Amount.Cmp(amount)*sign <= 0
}

// On returns the one of several legs that is on the leg's account, nil if none is.
func (l Leg) On(legs []Leg) *Leg {
	if i := slices.IndexFunc(legs, l.sameAccount); i >= 0 {
		return &legs[i]
	}
	return nil
}

// Within reports whether each of the legs is a movement of the others, or a part of it.
func Within(legs, others []Leg) bool { return Exceeding(legs, others) == nil }

// ReversalValues are what a reversal requires of the transfer that it reverses, and sets
// there.
func ReversalValues(reversal string) (Values, error) {
	require, err := bson.Marshal(bson.D{{Key: "state", Value: protocol.Success}})
	if err != nil {
		return Values{}, err
	}
	set, err := bson.Marshal(bson.D{{Key: "reversedBy", Value: reversal}})
	return Values{Require: require, Set: set}, err
}

// CountReversed writes that an original adds what the reversal moves to what all its
// reversals have moved.
func (t *Transfer) CountReversed(m *wire.Message) {
	m.Begin("$inc")
	for _, leg := range t.Legs {
		m.Amount("reversed."+leg.ReversedKey(), leg.Amount)
	}
	m.End()
}

// Comparison is how a reversal compares with what is left of its original.
type Comparison uint8

const (
	// Fits means that it can be made.
	Fits Comparison = iota + 1
	// Nothing means that nothing is left.
	Nothing
	// Less means that less is left than the reversal was asked to take back.
	Less
	// Other means that it was to take back all that is left, and that is not what it was
	// planned to.
	Other
)

// CompareReversal compares a reversal with what is left of its original.
// What was stored in the format before is not planned anew: an execution of that release
// may have prepared it.
func (t *Transfer) CompareReversal(left []Leg) Comparison {
	switch {
	case len(left) == 0:
		return Nothing
	case !Within(t.Legs, left):
		if t.Part || t.Digest.Format != Format {
			return Less
		}
		return Other
	case !t.Part && !Within(left, t.Legs):
		return Other
	}
	return Fits
}

// OriginalProjection are the fields by which the original of a reversal is judged, beside
// the markers and the fence.
func OriginalProjection() bson.D {
	var fields bson.D
	for _, name := range []string{"state", "legs", "posted", "reversedBy", "reversed"} {
		fields = append(fields, bson.E{Key: name, Value: 1})
	}
	return fields
}

// OriginalFence returns what stands for the fence of a reversal's original: the fence,
// and the latest reversal, with which what is left changes.
//
//  1. A reads that 60 are left.
//  2. B takes back 40.
//  3. A prepares to take back 60.
func OriginalFence(fence protocol.Fence, latest bson.RawValue) protocol.Fence {
	reversal := FenceOf(latest)
	both := binary.BigEndian.AppendUint32(nil, uint32(len(reversal)))
	return protocol.Fence(string(both) + string(reversal) + string(fence))
}

// OriginalIs requires both of what stands for the fence of a reversal's original.
func OriginalIs(m *wire.Message, field string, both protocol.Fence) {
	size := 0
	if len(both) >= 4 {
		size = min(len(both)-4, int(binary.BigEndian.Uint32([]byte(both[:4]))))
		both = both[4:]
	}
	FenceIs(m, field, both[size:])
	FenceIs(m, "reversedBy", both[:size])
}
