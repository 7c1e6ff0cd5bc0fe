package mongostore

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
)

// AuditDocument is a participant's document as an audit sees it. What the library could not have stored, and what it can't work with, is
// described for people.
type AuditDocument struct {
	Place *Place
	Key   string // its _id as it is stored, and comparable
	ID    string // as the API tells it

	Counts   bool // Balance is what the document has
	Balance  money.Amount
	Floor    money.Amount
	NoFloor  bool
	Currency string
	Closed   bool
	Markers  []Marker

	BadID, BadBalance, BadFloor, BadCurrency, BadPending, BadClosed string // what is wrong with the field; "": nothing
	id                                                              bson.RawValue
}

// Marker is an entry of a participant's pending map.
type Marker struct {
	Transfer string        // the transfer's ID; "" if the library writes no such key
	Key      string        // as it is stored
	Amount   *money.Amount // nil: it is no exact number
	Text     string        // the value, for people
}

// Part returns the participant as one to be found again.
func (p *AuditDocument) Part() Part { return Part{Place: p.Place, Key: p.Key, ID: p.ID, id: p.id} }

// auditDocument describes a document. It keeps nothing of it.
func (a *AuditReader) auditDocument(place *Place, document bson.Raw) AuditDocument {
	fields := place.ledger.fields
	id := document.Lookup("_id")
	id.Value = append([]byte(nil), id.Value...)
	p := AuditDocument{Place: place, Key: keyOf(id), ID: IDText(id), id: id}
	p.pending(document.Lookup(fields.Pending))
	if !place.Accounts {
		return p
	}
	if name, err := a.store.ids.decode(id); err != nil {
		p.BadID = err.Error()
	} else if _, err := a.store.ids.Encode(name); err != nil {
		p.BadID = err.Error()
	}
	p.balance(document.Lookup(fields.Balance))
	p.floor(fields.floor(document))
	p.currency(document.Lookup(fields.Currency))
	p.Closed = fields.closed(document)
	if stored := document.Lookup(fields.Closed); !absent(stored) && stored.Type != bson.TypeBoolean {
		p.BadClosed = stored.String() + " is no boolean"
	}
	return p
}

func (p *AuditDocument) balance(stored bson.RawValue) {
	var err error
	p.Balance, err = money.FromBSON(stored)
	p.Counts = err == nil
	switch {
	case absent(stored):
		p.BadBalance = "there is none"
	case err != nil:
		p.BadBalance = err.Error()
	case p.Balance.Places() > money.MaxPlaces:
		p.BadBalance = fmt.Sprintf("%s has more than %d digits behind the point", p.Balance, money.MaxPlaces)
	case p.Balance.Cmp(money.Ceiling(p.Balance.Kind())) > 0, p.Balance.Cmp(money.MaxBalance(p.Balance.Kind()).Neg()) < 0:
		p.BadBalance = fmt.Sprintf("%s is beyond the limits of what is stored", p.Balance)
	}
}

func (p *AuditDocument) floor(f floor) {
	p.Floor, p.NoFloor = f.amount, f.none
	switch {
	case f.odd:
		p.BadFloor = fmt.Sprintf("%s is neither an exact number nor MinKey", f.stored)
	case p.BadBalance != "" || f.none:
	case f.amount.Kind() == money.Decimal && p.Balance.Kind() == money.Whole:
		p.BadFloor = fmt.Sprintf("%s is a decimal, and the balance is whole", f.amount)
	}
}

func (p *AuditDocument) currency(stored bson.RawValue) {
	if absent(stored) {
		return
	}
	text, ok := stored.StringValueOK()
	if symbol, isSymbol := stored.SymbolOK(); isSymbol {
		text, ok = symbol, true
	}
	if !ok {
		p.BadCurrency = stored.String() + " is no string"
	}
	p.Currency = text
}

// pending reads the markers.
func (p *AuditDocument) pending(stored bson.RawValue) {
	if absent(stored) {
		return
	}
	pending, ok := stored.DocumentOK()
	if !ok {
		p.BadPending = fmt.Sprintf("%s is no map", stored)
		return
	}
	elements, err := pending.Elements()
	if err != nil {
		p.BadPending = err.Error()
	}
	for _, element := range elements {
		value := element.Value()
		m := Marker{Key: element.Key(), Text: value.String()}
		if amount, err := money.FromBSON(value); err == nil {
			m.Amount, m.Text = &amount, amount.String()
		}
		m.Transfer, _ = transferOf(m.Key)
		p.Markers = append(p.Markers, m)
	}
}

// transferOf returns the ID of the transfer whose marker has this key. It reports false for a key that no transfer's marker has.
func transferOf(key string) (string, bool) {
	var id strings.Builder
	for i := 0; i < len(key); i++ {
		if key[i] != '%' {
			id.WriteByte(key[i])
			continue
		}
		if i+2 >= len(key) {
			return "", false
		}
		c, err := strconv.ParseUint(key[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		id.WriteByte(byte(c))
		i += 2
	}
	transfer := id.String()
	if CheckID(transfer) != nil || markerKey(transfer) != key {
		return "", false
	}
	return transfer, true
}
