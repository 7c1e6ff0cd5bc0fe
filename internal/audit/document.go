package audit

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// Document is a participant's document as an audit sees it.
// Its fields named Bad say what is wrong with a stored field: the library could not have
// stored it, or can't work with it.
// They are empty where nothing is wrong.
type Document struct {
	// Collection is where the document is stored.
	Collection *collections.Collection
	// Key is its _id in a form that can be compared.
	Key string
	// ID is its ID as the API has it.
	ID string
	// Counts says that the balance is an exact number.
	Counts bool
	// Balance is the balance if that counts.
	Balance money.Amount
	// SetFloor says that a floor is stored, or that there is none.
	SetFloor bool
	// Currency is the account's currency.
	Currency string
	// Closed says that the account is closed.
	Closed bool
	// Markers are the entries of the map of markers, done marks among them.
	Markers []Marker

	BadID, BadBalance, BadFloor, BadCurrency, BadPending, BadClosed, BadFrozen string

	id bson.RawValue
}

// Marker is an entry of a participant's map of markers.
type Marker struct {
	// Transfer is the transfer's ID, empty if no transfer has this key.
	Transfer string
	// Key is the entry's key as it is stored.
	Key string
	// Done says that it is a done mark: its amount is paid in, and reserves nothing.
	Done bool
	// Amount is the entry's value, nil if that is no exact number.
	Amount *money.Amount
	// Text is the entry's value in messages.
	Text string
}

// asParticipant returns the document as a participant, by which it can be read again.
func (d *Document) asParticipant() Participant {
	return Participant{Collection: d.Collection, Key: d.Key, ID: d.ID, id: d.id}
}

// document decodes a document. It keeps none of its bytes.
func (r *Reader) document(c *collections.Collection, raw bson.Raw) *Document {
	view := c.Fields.View(raw)
	id := view.ID()
	id.Value = append([]byte(nil), id.Value...)
	d := &Document{Collection: c, Key: document.ComparableID(id), ID: document.IDText(id), id: id}
	d.decodeMarkers(view.Pending(), c.HoldsAccounts())
	if !c.HoldsAccounts() {
		return d
	}
	if name, err := r.catalog.IDs.Decode(id); err != nil {
		d.BadID = err.Error()
	} else if _, err := r.catalog.IDs.Encode(name); err != nil {
		d.BadID = err.Error()
	}
	d.decodeBalance(view.StoredBalance())
	d.decodeFloor(view.Floor())
	text, ok := view.CurrencyText()
	if !ok {
		d.BadCurrency = view.StoredCurrency().String() + " is no string"
	}
	d.Currency = text
	d.Closed = view.Closed()
	if stored := view.StoredClosed(); !document.Absent(stored) && stored.Type != bson.TypeBoolean {
		d.BadClosed = stored.String() + " is no boolean"
	}
	if stored := view.StoredFrozen(); !document.Absent(stored) && stored.Type != bson.TypeBoolean {
		d.BadFrozen = stored.String() + " is no boolean"
	}
	return d
}

func (d *Document) decodeBalance(stored bson.RawValue) {
	var err error
	d.Balance, err = money.FromBSON(stored)
	d.Counts = err == nil
	kind := d.Balance.Kind()
	switch {
	case document.Absent(stored):
		d.BadBalance = "there is none"
	case err != nil:
		d.BadBalance = err.Error()
	case d.Balance.Places() > money.MaxPlaces:
		d.BadBalance = fmt.Sprintf("%s has more than %d digits behind the point", d.Balance, money.MaxPlaces)
	case d.Balance.Cmp(money.MaxExact(kind)) > 0, d.Balance.Cmp(money.MaxBalance(kind).Neg()) < 0:
		d.BadBalance = fmt.Sprintf("%s is beyond the limits of what is stored", d.Balance)
	}
}

func (d *Document) decodeFloor(f document.Floor) {
	d.SetFloor = !document.Absent(f.Stored)
	switch {
	case f.Odd:
		d.BadFloor = fmt.Sprintf("%s is neither an exact number nor MinKey", f.Stored)
	case d.BadBalance != "" || f.None:
	case f.Amount.Kind() == money.Decimal && d.Balance.Kind() == money.Whole:
		d.BadFloor = fmt.Sprintf("%s is a decimal, and the balance is whole", f.Amount)
	}
}

// decodeMarkers decodes the markers.
// Null is as good as no map for a document, whose map is stored as a whole.
// The server sets no marker of an account in null.
func (d *Document) decodeMarkers(stored bson.RawValue, account bool) {
	if stored.Type == 0 || !account && document.Absent(stored) {
		return
	}
	pending, ok := stored.DocumentOK()
	if !ok {
		d.BadPending = fmt.Sprintf("%s is no map", stored)
		return
	}
	elements, err := pending.Elements()
	if err != nil {
		d.BadPending = err.Error()
	}
	for _, element := range elements {
		value := element.Value()
		m := Marker{Key: element.Key(), Text: value.String()}
		if amount, err := money.FromBSON(value); err == nil {
			m.Amount, m.Text = &amount, amount.String()
		}
		var key string
		key, m.Done = document.CutDone(m.Key)
		m.Transfer, _ = document.TransferOf(key)
		d.Markers = append(d.Markers, m)
	}
}

// hasMarker reports whether the document has a marker of a transfer. A done mark is none.
func (d *Document) hasMarker(transfer string) bool {
	return slices.ContainsFunc(d.Markers, func(m Marker) bool { return m.Transfer == transfer && !m.Done })
}

// hasTrace reports whether the document has a marker or a done mark of a transfer.
func (d *Document) hasTrace(transfer string) bool {
	return slices.ContainsFunc(d.Markers, func(m Marker) bool { return m.Transfer == transfer })
}

// reserved returns the markers without the done marks.
func (d *Document) reserved() []Marker {
	return slices.DeleteFunc(slices.Clone(d.Markers), func(m Marker) bool { return m.Done })
}
