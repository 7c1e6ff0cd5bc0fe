package audit

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// judgeDocument finds what is wrong with a participant, whatever its transfers are.
func judgeDocument(p *Document) []Finding {
	var found []Finding
	for _, field := range []struct {
		code Code
		bad  string
		name string
	}{
		{WrongID, p.BadID, "_id"}, {WrongBalance, p.BadBalance, "balance"}, {WrongFloor, p.BadFloor, "floor"},
		{WrongCurrency, p.BadCurrency, "currency"}, {WrongPending, p.BadPending, "map of markers"},
		{WrongClosed, p.BadClosed, "flag closed"},
	} {
		if field.bad != "" {
			found = append(found, aboutDocument(p, field.code, "the %s: %s", field.name, field.bad))
		}
	}
	if p.Counts && !p.NoFloor && p.BadFloor == "" && p.Place.Accounts && p.Balance.Cmp(p.Floor) < 0 {
		found = append(found, aboutDocument(p, BelowFloor, "the balance is %s, and the floor %s", p.Balance, p.Floor))
	}
	if p.Closed && len(p.Markers) > 0 {
		found = append(found, aboutDocument(p, ClosedMarker, "it is closed, and has %d markers, like that of transfer %q",
			len(p.Markers), p.Markers[0].Key))
	}
	return found
}

// judgeMarker finds what is wrong with a marker, given its transfer as it is at the same moment; nil: there is none.
func judgeMarker(atlas *Reader, p *Document, m Marker, t *Transfer) (Finding, bool) {
	switch {
	case t == nil:
		return aboutMarker(p, m, OrphanMarker, "which does not exist"), true
	case t.Err != nil || !t.State.Known():
		return Finding{}, false // which is found where transfers are judged
	case t.Tombstone():
		return aboutMarker(p, m, OrphanMarker, "which is lost, as is told in its place: account %q of ledger %q: %s",
			t.Failure.Account, t.Failure.Ledger, t.Failure.Message), true
	}
	part, touched := participantOf(atlas, p, t)
	switch {
	case !touched:
		return aboutMarker(p, m, ForeignMarker, "which is %s, and does not touch this document", t.State), true
	case t.State.Final():
		return aboutMarker(p, m, FinalMarker, "which is final: %s", t.State), true
	case t.State == protocol.Initiated:
		return aboutMarker(p, m, EarlyMarker, "which nobody has claimed yet"), true
	}
	due := money.Units(0)
	if part.Amount != nil {
		due = *part.Amount
	}
	switch {
	case m.Amount == nil || m.Amount.Cmp(due) != 0:
		return aboutMarker(p, m, WrongMarker, "which moves %s here", due), true
	case part.Amount != nil && m.Amount.Kind() != due.Kind():
		return aboutMarker(p, m, WrongMarker, "which moves %s here: that is %s, and the marker %s", due, kindOf(due), kindOf(*m.Amount)), true
	case p.Counts && m.Amount.Kind() != p.Balance.Kind():
		return aboutMarker(p, m, WrongMarker, "which moves %s here: that is %s, and the balance %s", due, kindOf(due), kindOf(p.Balance)), true
	}
	return Finding{}, false
}

func kindOf(a money.Amount) string {
	if a.Kind() == money.Whole {
		return "whole"
	}
	return "a decimal"
}

// participantOf finds a document among a transfer's participants, be it that another service, which works on the same transfers, has another name
// for its collection: else its healthy transfers would be called foreign here.
func participantOf(atlas *Reader, p *Document, t *Transfer) (Participant, bool) {
	var renamed *Participant
	for _, part := range atlas.Participants(t.Transfer) {
		switch {
		case part.Key != p.Key:
		case part.Place == p.Place:
			return part, true
		case part.Place == nil && part.Namespace == p.Place.Namespace: // or one of that name on a cluster that is not registered here
			renamed = &part
		}
	}
	if renamed == nil {
		return Participant{}, false
	}
	return *renamed, true
}

// judgeParticipant finds what is wrong with a participant of an unfinished transfer, given its document at the same moment; nil: there is none.
// A marker that is missing proves nothing unless the transfer is held: before, it may not be there yet, and after the decision it may be
// settled.
func judgeParticipant(t *Transfer, part Participant, p *Document) (Finding, bool) {
	held := t.State == protocol.Preparing && t.Held
	var code Code
	var f Finding
	switch {
	case p == nil && !part.Spare && (held || t.State == protocol.Committed):
		code = MissingDocument
		f = aboutTransfer(t.ID, code, "it is %s, so all its participants were prepared, and %s is gone", t.State, part.Name)
	case p != nil && held && !hasMarker(p, t.ID):
		code = MissingMarker
		f = aboutTransfer(t.ID, code, "it holds money, and %s has no marker of it%s", part.Name, balanceOf(p))
	default:
		return Finding{}, false
	}
	f.Account = part.ID
	if part.Place.Accounts {
		f.Ledger = part.Place.Name
	} else {
		f.Namespace = part.Place.Namespace
	}
	return f, true
}

func hasMarker(p *Document, transfer string) bool {
	for _, m := range p.Markers {
		if m.Transfer == transfer {
			return true
		}
	}
	return false
}

// inTransit returns the money that a marker stands for which is on no balance. Before the decision that is what a debit has taken. Once
// the transfer is decided to happen, it is what a credit has not got yet, and what a posted hold has not returned yet; once it is decided
// not to, what a debit has not been given back.
func inTransit(atlas *Reader, p *Document, t *Transfer) (money.Amount, bool) {
	part, touched := participantOf(atlas, p, t)
	if !touched || part.Amount == nil {
		return money.Amount{}, false
	}
	amount := *part.Amount
	switch t.State {
	case protocol.Preparing, protocol.Rollback, protocol.Fail:
		return amount.Neg(), amount.Sign() < 0
	case protocol.Committed, protocol.Success:
		if t.Posted == nil {
			return amount, amount.Sign() > 0
		}
		if amount.Sign() > 0 {
			return *t.Posted, true
		}
		rest, err := amount.Neg().Add(t.Posted.Neg())
		return rest, err == nil
	case protocol.Initiated:
	}
	return money.Amount{}, false
}

// Document is a participant's document as an audit sees it. What the library could not have stored, and what it can't work with, is
// described for people.
type Document struct {
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

// AsParticipant returns the participant as one to be found again.
func (p *Document) AsParticipant() Participant {
	return Participant{Place: p.Place, Key: p.Key, ID: p.ID, id: p.id}
}

// Document describes a document. It keeps nothing of it.
func (a *Reader) Document(place *Place, doc bson.Raw) Document {
	fields := place.ledger.Fields
	id := doc.Lookup("_id")
	id.Value = append([]byte(nil), id.Value...)
	p := Document{Place: place, Key: keyOf(id), ID: document.IDText(id), id: id}
	p.pending(doc.Lookup(fields.Pending))
	if !place.Accounts {
		return p
	}
	if name, err := a.store.IDs.Decode(id); err != nil {
		p.BadID = err.Error()
	} else if _, err := a.store.IDs.Encode(name); err != nil {
		p.BadID = err.Error()
	}
	p.balance(doc.Lookup(fields.Balance))
	p.floor(fields.FloorOf(doc))
	p.currency(doc.Lookup(fields.Currency))
	p.Closed = fields.IsClosed(doc)
	if stored := doc.Lookup(fields.Closed); !document.Absent(stored) && stored.Type != bson.TypeBoolean {
		p.BadClosed = stored.String() + " is no boolean"
	}
	return p
}

func (p *Document) balance(stored bson.RawValue) {
	var err error
	p.Balance, err = money.FromBSON(stored)
	p.Counts = err == nil
	switch {
	case document.Absent(stored):
		p.BadBalance = "there is none"
	case err != nil:
		p.BadBalance = err.Error()
	case p.Balance.Places() > money.MaxPlaces:
		p.BadBalance = fmt.Sprintf("%s has more than %d digits behind the point", p.Balance, money.MaxPlaces)
	case p.Balance.Cmp(money.Ceiling(p.Balance.Kind())) > 0, p.Balance.Cmp(money.MaxBalance(p.Balance.Kind()).Neg()) < 0:
		p.BadBalance = fmt.Sprintf("%s is beyond the limits of what is stored", p.Balance)
	}
}

func (p *Document) floor(f document.Floor) {
	p.Floor, p.NoFloor = f.Amount, f.None
	switch {
	case f.Odd:
		p.BadFloor = fmt.Sprintf("%s is neither an exact number nor MinKey", f.Stored)
	case p.BadBalance != "" || f.None:
	case f.Amount.Kind() == money.Decimal && p.Balance.Kind() == money.Whole:
		p.BadFloor = fmt.Sprintf("%s is a decimal, and the balance is whole", f.Amount)
	}
}

func (p *Document) currency(stored bson.RawValue) {
	if document.Absent(stored) {
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
func (p *Document) pending(stored bson.RawValue) {
	if document.Absent(stored) {
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
		m.Transfer, _ = TransferOf(m.Key)
		p.Markers = append(p.Markers, m)
	}
}

// TransferOf returns the ID of the transfer whose marker has this key. It reports false for a key that no transfer's marker has.
func TransferOf(key string) (string, bool) {
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
	if document.CheckID(transfer) != nil || document.MarkerKey(transfer) != key {
		return "", false
	}
	return transfer, true
}
