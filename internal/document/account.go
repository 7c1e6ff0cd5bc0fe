package document

import (
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/words"
)

// Account is an account's document.
type Account struct {
	// ID is the account's ID as the API has it.
	ID string
	// Balance is the stored one: debits in flight are off it already.
	Balance money.Amount
	// Floor is the least balance that a debit may leave, and NoFloor says that there is
	// none.
	Floor   money.Amount
	NoFloor bool
	// Currency is "" where none is stored.
	Currency string
	// Closed says that no transfer may begin there, and so does Frozen.
	Closed, Frozen bool
	// Metadata is the user's.
	Metadata bson.Raw
	// Reserved is the sum of the debits in flight, and Incoming that of the credits.
	Reserved, Incoming money.Amount
	// Debits are the debits in flight, but for those whose marker names no transfer.
	Debits []Debit
}

// Debit is a debit in flight.
type Debit struct {
	// Transfer is the ID of its transfer.
	Transfer string
	// Amount is what it has taken off the balance.
	Amount money.Amount
}

// Conclude counts a debit of a committed transfer as no longer in flight: the money is
// not the account's any more. Where a part of a hold was posted, only that part has gone,
// and the rest is paid back.
//
// A stored amount may be no part: nothing, or not less than the debit. Nobody settles
// such a transfer, so its debit is in flight until somebody has mended it.
func (a *Account) Conclude(d Debit, posted bson.RawValue) error {
	gone := d.Amount
	if !Absent(posted) {
		part, err := money.FromBSON(posted)
		if err != nil {
			return fmt.Errorf("transfer %s: %w", words.Quote(d.Transfer), err)
		}
		if !d.hasPart(part) {
			return nil
		}
		gone = part
	}
	rest, err := a.Reserved.Add(gone.Neg())
	if err != nil {
		return fmt.Errorf("transfer %s: %w", words.Quote(d.Transfer), err)
	}
	a.Reserved = rest
	return nil
}

// hasPart reports whether an amount is a part of the debit: more than nothing, and less
// than all.
func (d Debit) hasPart(part money.Amount) bool {
	return part.Kind() == d.Amount.Kind() && part.Sign() > 0 && part.Cmp(d.Amount) < 0
}

// Projection returns the fields that facts are judged by.
func (f Fields) Projection() bson.D {
	fields := bson.D{{Key: f.Pending, Value: 1}, {Key: f.Fence, Value: 1}}
	for _, ofAccounts := range []string{f.Balance, f.Floor, f.Currency, f.Closed, f.Frozen} {
		if ofAccounts != "" {
			fields = append(fields, bson.E{Key: ofAccounts, Value: 1})
		}
	}
	return fields
}

// Absent reports whether a field is missing or null, which filters take for the same.
func Absent(value bson.RawValue) bool { return value.Type == 0 || value.Type == bson.TypeNull }

// Account decodes an account's document.
// It fails for a document that the library can't work with.
func (v View) Account(ids IDCodec) (Account, error) {
	id, err := ids.Decode(v.ID())
	if err != nil {
		return Account{}, err
	}
	if why := v.WrongBalance(); why != "" {
		return Account{}, errors.New(why)
	}
	balance, err := v.Balance()
	if err != nil {
		return Account{}, err
	}
	floor := v.Floor()
	if floor.Odd {
		return Account{}, errors.New(v.WrongFloor())
	}
	a := Account{
		ID: id, Balance: balance, Floor: floor.Amount, NoFloor: floor.None,
		Closed: v.Closed(), Frozen: v.Frozen(),
		Reserved: money.Zero(balance.Kind()), Incoming: money.Zero(balance.Kind()),
	}
	a.Currency, _ = v.StoredCurrency().StringValueOK()
	a.Metadata, _ = v.Stored.Lookup("metadata").DocumentOK()
	return a, a.addPending(v)
}

// addPending adds up what is in flight on an account. What has a done mark is not: it is
// on the balance.
func (a *Account) addPending(v View) error {
	if !v.HasMap() {
		return fmt.Errorf("%s: %w", v.Fields.Pending, ErrGarbled)
	}
	pending, _ := v.Pending().DocumentOK()
	elements, err := pending.Elements()
	if pending == nil || err != nil {
		return err
	}
	for _, element := range elements {
		if _, done := CutDone(element.Key()); done {
			continue
		}
		marker, err := money.FromBSON(element.Value())
		if err != nil {
			return fmt.Errorf("marker %s: %w", words.Quote(element.Key()), err)
		}
		sum := &a.Incoming
		if marker.Sign() < 0 {
			sum, marker = &a.Reserved, marker.Neg()
			a.addDebit(element.Key(), marker)
		}
		if *sum, err = sum.Add(marker); err != nil {
			return fmt.Errorf("marker %s: %w", words.Quote(element.Key()), err)
		}
	}
	return nil
}

func (a *Account) addDebit(key string, amount money.Amount) {
	if id, ok := spelledID(key); ok {
		a.Debits = append(a.Debits, Debit{id, amount})
	}
}

// KindOf names the kind of an amount in a text.
func KindOf(a money.Amount) string {
	if a.Kind() == money.Decimal {
		return "decimals"
	}
	return "whole units"
}

// WrongBalance returns why the balance is not an exact number, "" if it is one.
func (v View) WrongBalance() string {
	stored := v.StoredBalance()
	if stored.Type == 0 {
		return fmt.Sprintf("there is no balance field %q", v.Fields.Balance)
	}
	_, err := money.FromBSON(stored)
	switch {
	case err == nil:
		return ""
	case stored.Type == bson.TypeDecimal128:
		return "the balance is no number that can be stored exactly"
	}
	return fmt.Sprintf("the balance is stored as %s: store an int32, an int64 or a Decimal128", article(stored.Type))
}

// WrongFloor returns why an odd floor can't be used.
func (v View) WrongFloor() string {
	stored := v.Floor().Stored
	if stored.Type == bson.TypeDecimal128 {
		return fmt.Sprintf("the floor, in the field %q, is no number that can be stored exactly", v.Fields.Floor)
	}
	return fmt.Sprintf("the floor, in the field %q, is stored as %s: store an int32, an int64, a Decimal128, or MinKey for none",
		v.Fields.Floor, article(stored.Type))
}

// article returns the name of a type with its article.
func article(kind bson.Type) string {
	name := kind.String()
	if name != "" && strings.ContainsRune("aeiou", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// WhyUnlike says why an account's document can't take part in a transfer of a kind of
// amounts, without the figures; "" if it can.
func (v View) WhyUnlike(kind money.Kind) string {
	if v.Pending().Type == bson.TypeArray {
		return fmt.Sprintf("the field %q is an array, and should be a document: see RepairPending", v.Fields.Pending)
	}
	if why := v.WrongBalance(); why != "" {
		return why
	}
	balance, _ := v.Balance()
	switch {
	case balance.Kind() != kind:
		return "the balance is of " + KindOf(balance) + ", and the amount of " + KindOf(money.Zero(kind))
	case balance.Places() > money.MaxPlaces:
		return fmt.Sprintf("the balance has more than %d digits behind the point", money.MaxPlaces)
	case v.Floor().Odd:
		return v.WrongFloor()
	case v.Floor().Amount.Kind() != balance.Kind():
		return "the floor is of decimals, and the balance of whole units"
	}
	return ""
}
