package document

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Account is an account's document.
type Account struct {
	ID       string
	Balance  money.Amount // as stored: debits in flight are off it already
	Floor    money.Amount
	NoFloor  bool
	Currency string
	Closed   bool
	Metadata bson.Raw
	Reserved money.Amount // debits in flight
	Incoming money.Amount // credits in flight
}

// Projection names the fields that facts are judged by.
func (f Fields) Projection() bson.D {
	fields := bson.D{{Key: f.Pending, Value: 1}, {Key: f.Fence, Value: 1}}
	for _, ofAccounts := range []string{f.Balance, f.Floor, f.Currency, f.Closed} {
		if ofAccounts != "" {
			fields = append(fields, bson.E{Key: ofAccounts, Value: 1})
		}
	}
	return fields
}

// Floor is the least balance that a debit may leave.
type Floor struct {
	Stored bson.RawValue // the zero value where none is stored
	Amount money.Amount
	None   bool // down to the limit of what is stored
	Odd    bool // neither a number nor the mark for none
}

// NoFloor is stored in the floor's field of an account that may go as low as a balance can: MinKey stands
// below all numbers.
func NoFloor() any { return bson.MinKey{} }

func (f Fields) FloorOf(document bson.Raw) Floor {
	stored := document.Lookup(f.Floor)
	if Absent(stored) {
		return Floor{}
	}
	return FloorOf(stored)
}

func FloorOf(stored bson.RawValue) Floor {
	if stored.Type == bson.TypeMinKey {
		return Floor{Stored: stored, None: true}
	}
	amount, err := money.FromBSON(stored)
	return Floor{Stored: stored, Amount: amount, Odd: err != nil}
}

// Bounds returns the least and the largest balance with which prepares can be made that take so much in all, and of whose
// credits the largest is this one, after so much was paid in. Where the floor can't be understood, no balance lies between them, and
// ok is false.
func Bounds(f Floor, taken, paid, largest money.Amount) (low, high money.Amount, ok bool) {
	limit := money.MaxBalance(taken.Kind())
	low, err := f.after(limit.Neg(), taken, paid)
	if err == nil {
		high, err = subtract(limit, paid, largest)
	}
	if err != nil {
		return limit, limit.Neg(), false
	}
	return low, high, true
}

// after returns the least balance that leaves the floor standing, where anything is taken at all.
func (f Floor) after(least, taken, paid money.Amount) (money.Amount, error) {
	if taken.Sign() == 0 {
		return least, nil
	}
	low, err := f.Above(least)
	if err != nil {
		return least, err
	}
	return subtract(low, taken.Neg(), paid)
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

// Absent reports whether a field is missing or null, which filters take for the same.
func Absent(value bson.RawValue) bool { return value.Type == 0 || value.Type == bson.TypeNull }

// IsClosed judges like the filter, which looks into an array.
func (f Fields) IsClosed(document bson.Raw) bool {
	values := []bson.RawValue{document.Lookup(f.Closed)}
	if list, ok := values[0].ArrayOK(); ok {
		values, _ = list.Values()
	}
	return slices.ContainsFunc(values, func(v bson.RawValue) bool {
		closed, ok := v.BooleanOK()
		return ok && closed
	})
}

func (f Fields) CurrencyIs(document bson.Raw, currency string) bool {
	stored := document.Lookup(f.Currency)
	if Absent(stored) {
		return currency == ""
	}
	if symbol, ok := stored.SymbolOK(); ok { // which compares equal to a string
		return symbol == currency
	}
	text, ok := stored.StringValueOK()
	return ok && text == currency
}

// FenceOf returns a participant's fence: type and bytes of whatever is stored, since the protocol only compares it.
func (f Fields) FenceOf(document bson.Raw) protocol.Fence {
	stored := document.Lookup(f.Fence)
	if Absent(stored) {
		return ""
	}
	return protocol.Fence(append([]byte{byte(stored.Type)}, stored.Value...))
}

// FenceOfToken returns a token as the protocol knows it.
func FenceOfToken(token bson.ObjectID) protocol.Fence {
	return protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, token[:]...))
}

// DecodeAccount reads an account's document for those who ask for it.
func (f Fields) DecodeAccount(ids IDCodec, document bson.Raw) (Account, error) {
	id, err := ids.Decode(document.Lookup("_id"))
	if err != nil {
		return Account{}, err
	}
	if why := f.Inexact(document); why != "" {
		return Account{}, errors.New(why)
	}
	balance, err := money.FromBSON(document.Lookup(f.Balance))
	if err != nil {
		return Account{}, err
	}
	least := f.FloorOf(document)
	if least.Odd {
		return Account{}, errors.New(f.OddFloor(least))
	}
	a := Account{
		ID: id, Balance: balance, Floor: least.Amount, NoFloor: least.None, Closed: f.IsClosed(document),
		Reserved: money.Zero(balance.Kind()), Incoming: money.Zero(balance.Kind()),
	}
	a.Currency, _ = document.Lookup(f.Currency).StringValueOK()
	a.Metadata, _ = document.Lookup("metadata").DocumentOK()
	return a, f.addPending(&a, document)
}

// addPending adds up what is in flight on an account.
func (f Fields) addPending(a *Account, document bson.Raw) error {
	if !f.HasMap(document) {
		return fmt.Errorf("%s: %w", f.Pending, ErrGarbled)
	}
	pending, _ := document.Lookup(f.Pending).DocumentOK()
	elements, err := pending.Elements()
	if pending == nil || err != nil {
		return err
	}
	for _, element := range elements {
		marker, err := money.FromBSON(element.Value())
		if err != nil {
			return fmt.Errorf("marker %s: %w", words.Quote(element.Key()), err)
		}
		sum := &a.Incoming
		if marker.Sign() < 0 {
			sum, marker = &a.Reserved, marker.Neg()
		}
		if *sum, err = sum.Add(marker); err != nil {
			return fmt.Errorf("marker %s: %w", words.Quote(element.Key()), err)
		}
	}
	return nil
}

// Unmet says how the document of an effect, or the original of a reversal, is not as
// required. The zero value says that it isn't.
type Unmet struct {
	Missing    bool
	ReservedBy string // the transfer that has reserved it
	Field      string // that has another value
	Want, Got  bson.RawValue
}

// CurrencyOf returns an account's currency in words that can be told: what is no text is
// named by its type.
func (f Fields) CurrencyOf(document bson.Raw) string {
	stored := document.Lookup(f.Currency)
	if Absent(stored) {
		return ""
	}
	if text, ok := stored.StringValueOK(); ok {
		return text
	}
	if symbol, ok := stored.SymbolOK(); ok {
		return symbol
	}
	return stored.Type.String()
}

// Reservation says by whom a document is reserved, or that its map of markers is none.
func (f Fields) Reservation(document bson.Raw, transferID string) *Unmet {
	pending := document.Lookup(f.Pending)
	markers, ok := pending.DocumentOK()
	if !ok {
		return &Unmet{Field: f.Pending, Got: pending}
	}
	own := MarkerKey(transferID)
	for _, marker := range wire.Elements(markers) {
		if marker.Key() != own {
			return &Unmet{ReservedBy: markedBy(marker.Key())}
		}
	}
	return &Unmet{}
}

// markedBy returns the ID of the transfer that a marker's key stands for.
func markedBy(key string) string {
	if id, err := url.PathUnescape(key); err == nil {
		return id
	}
	return key
}

func KindOf(a money.Amount) string {
	if a.Kind() == money.Decimal {
		return "decimals"
	}
	return "whole units"
}

// Inexact tells why a document has no balance that is an exact number; "" if it has one.
func (f Fields) Inexact(document bson.Raw) string {
	stored := document.Lookup(f.Balance)
	if stored.Type == 0 {
		return fmt.Sprintf("there is no balance field %q", f.Balance)
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

// OddFloor tells why a floor is none.
func (f Fields) OddFloor(odd Floor) string {
	if odd.Stored.Type == bson.TypeDecimal128 {
		return fmt.Sprintf("the floor, in the field %q, is no number that can be stored exactly", f.Floor)
	}
	return fmt.Sprintf("the floor, in the field %q, is stored as %s: store an int32, an int64, a Decimal128, or MinKey for none",
		f.Floor, article(odd.Stored.Type))
}

// article names a kind of stored values.
func article(kind bson.Type) string {
	name := kind.String()
	if name != "" && strings.ContainsRune("aeiouAEIOU", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}
