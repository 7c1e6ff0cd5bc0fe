package mongostore

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
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

// projection names the fields that facts are judged by.
func (f Fields) projection() bson.D {
	fields := bson.D{{Key: f.Pending, Value: 1}, {Key: f.Fence, Value: 1}}
	for _, ofAccounts := range []string{f.Balance, f.Floor, f.Currency, f.Closed} {
		if ofAccounts != "" {
			fields = append(fields, bson.E{Key: ofAccounts, Value: 1})
		}
	}
	return fields
}

// floor is the least balance that a debit may leave.
type floor struct {
	stored bson.RawValue // the zero value where none is stored
	amount money.Amount
	none   bool // down to the limit of what is stored
	odd    bool // neither a number nor the mark for none
}

// noFloor is stored in the floor's field of an account that may go as low as a balance can: MinKey stands
// below all numbers.
func noFloor() any { return bson.MinKey{} }

func (f Fields) floor(document bson.Raw) floor {
	stored := document.Lookup(f.Floor)
	if absent(stored) {
		return floor{}
	}
	return floorOf(stored)
}

func floorOf(stored bson.RawValue) floor {
	if stored.Type == bson.TypeMinKey {
		return floor{stored: stored, none: true}
	}
	amount, err := money.FromBSON(stored)
	return floor{stored: stored, amount: amount, odd: err != nil}
}

// bounds returns the least and the largest balance with which prepares can be made that take so much in all, and of whose
// credits the largest is this one, after so much was paid in. Where the floor can't be understood, no balance lies between them, and
// ok is false.
func bounds(f floor, taken, paid, largest money.Amount) (low, high money.Amount, ok bool) {
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
func (f floor) after(least, taken, paid money.Amount) (money.Amount, error) {
	if taken.Sign() == 0 {
		return least, nil
	}
	low, err := f.above(least)
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

// bounds returns those of this participant's prepare alone.
func (p *participant) bounds() (low, high money.Amount, ok bool) {
	amount := p.leg.Amount
	none := money.Zero(amount.Kind())
	if amount.Sign() > 0 {
		return bounds(p.floor, none, none, amount)
	}
	return bounds(p.floor, amount.Neg(), none, none)
}

// above returns the floor, or the least balance that can be stored where that is higher.
func (f floor) above(least money.Amount) (money.Amount, error) {
	switch {
	case f.none:
		return least, nil
	case f.odd:
		return least, errors.New("the floor is no exact number")
	}
	amount := f.amount
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

// facts judges a participant's document for this work's transfer.
func (s *Store) facts(w *Attempt, p *participant, document bson.Raw) protocol.Facts {
	if p.effect != nil {
		return effectFacts(w, p, document)
	}
	if document == nil {
		return protocol.Facts{}
	}
	p.floor = s.fields.floor(document)
	balance := document.Lookup(s.fields.Balance)
	p.balance = &balance
	markers, marker := s.fields.markers(document, w.Transfer.ID)
	facts := protocol.Facts{
		Found:            true,
		Marker:           marker || p.garbles(w, document),
		Fence:            s.fields.fence(document),
		Open:             !s.fields.closed(document),
		Currency:         s.fields.currencyIs(document, w.Transfer.Currency),
		BelowMarkerLimit: markers < s.markerLimit,
		Funds:            true,
		WithinLimits:     true,
	}
	p.currency = nil
	if !facts.Currency {
		currency := s.fields.currency(document)
		p.currency = &currency
	}
	facts.Kind, facts.Funds, facts.WithinLimits = p.judge(balance)
	if document.Lookup(s.fields.Pending).Type == bson.TypeArray {
		facts.Kind, facts.Funds, facts.WithinLimits = false, true, true // a path into an array means something else
	}
	if p.unlike = ""; !facts.Kind {
		p.unlike = s.unlike(p, document)
	}
	return facts
}

// judge compares a balance with the bounds: is it an exact number of the amount's kind, is there enough, is there room?
func (p *participant) judge(stored bson.RawValue) (kind, funds, room bool) {
	balance, err := money.FromBSON(stored)
	low, high, ok := p.bounds()
	if err != nil || !ok || balance.Kind() != p.leg.Amount.Kind() || balance.Places() > money.MaxPlaces {
		return false, true, true
	}
	enough, room := balance.Cmp(low) >= 0, balance.Cmp(high) <= 0
	if p.leg.Amount.Sign() > 0 {
		return true, true, enough && room
	}
	return true, enough, room
}

// absent reports whether a field is missing or null, which filters take for the same.
func absent(value bson.RawValue) bool { return value.Type == 0 || value.Type == bson.TypeNull }

// closed judges like the filter, which looks into an array.
func (f Fields) closed(document bson.Raw) bool {
	values := []bson.RawValue{document.Lookup(f.Closed)}
	if list, ok := values[0].ArrayOK(); ok {
		values, _ = list.Values()
	}
	return slices.ContainsFunc(values, func(v bson.RawValue) bool {
		closed, ok := v.BooleanOK()
		return ok && closed
	})
}

func (f Fields) currencyIs(document bson.Raw, currency string) bool {
	stored := document.Lookup(f.Currency)
	if absent(stored) {
		return currency == ""
	}
	if symbol, ok := stored.SymbolOK(); ok { // which compares equal to a string
		return symbol == currency
	}
	text, ok := stored.StringValueOK()
	return ok && text == currency
}

// fence returns a participant's fence: type and bytes of whatever is stored, since the protocol only compares it.
func (f Fields) fence(document bson.Raw) protocol.Fence {
	stored := document.Lookup(f.Fence)
	if absent(stored) {
		return ""
	}
	return protocol.Fence(append([]byte{byte(stored.Type)}, stored.Value...))
}

// fenceOf returns a token as the protocol knows it.
func fenceOf(token bson.ObjectID) protocol.Fence {
	return protocol.Fence(append([]byte{byte(bson.TypeObjectID)}, token[:]...))
}

// decodeAccount reads an account's document for those who ask for it.
func (f Fields) decodeAccount(ids IDCodec, document bson.Raw) (Account, error) {
	id, err := ids.decode(document.Lookup("_id"))
	if err != nil {
		return Account{}, err
	}
	if why := f.inexact(document); why != "" {
		return Account{}, errors.New(why)
	}
	balance, err := money.FromBSON(document.Lookup(f.Balance))
	if err != nil {
		return Account{}, err
	}
	least := f.floor(document)
	if least.odd {
		return Account{}, errors.New(f.oddFloor(least))
	}
	a := Account{
		ID: id, Balance: balance, Floor: least.amount, NoFloor: least.none, Closed: f.closed(document),
		Reserved: money.Zero(balance.Kind()), Incoming: money.Zero(balance.Kind()),
	}
	a.Currency, _ = document.Lookup(f.Currency).StringValueOK()
	a.Metadata, _ = document.Lookup("metadata").DocumentOK()
	return a, f.addPending(&a, document)
}

// addPending adds up what is in flight on an account.
func (f Fields) addPending(a *Account, document bson.Raw) error {
	if !f.hasMap(document) {
		return fmt.Errorf("%s: %w", f.Pending, errGarbled)
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
