package document

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// View reads the stored document of a participant by the names of its fields.
// All that is known of an account, and of the markers and the fence of any other
// participant, comes from a view.
// It decodes a field when it is asked for it, and keeps nothing.
type View struct {
	// Stored is the document, nil where there is none.
	Stored bson.Raw
	// Fields are the names of its fields.
	Fields Fields
}

// View returns a view of a stored document.
func (f Fields) View(stored bson.Raw) View { return View{stored, f} }

// Found reports whether there is a document.
func (v View) Found() bool { return v.Stored != nil }

// ID returns the _id as it is stored.
func (v View) ID() bson.RawValue { return v.Stored.Lookup("_id") }

// StoredBalance returns the balance as it is stored.
func (v View) StoredBalance() bson.RawValue { return v.Stored.Lookup(v.Fields.Balance) }

// Balance returns the balance.
// It fails if what is stored is not an exact number: see [View.WrongBalance].
func (v View) Balance() (money.Amount, error) { return money.FromBSON(v.StoredBalance()) }

// Floor returns the least balance that a debit may leave.
func (v View) Floor() Floor {
	stored := v.Stored.Lookup(v.Fields.Floor)
	if Absent(stored) {
		return Floor{}
	}
	return FloorOf(stored)
}

// Fence returns the fence, whatever is stored as one: the protocol only compares it.
func (v View) Fence() protocol.Fence { return FenceOf(v.Stored.Lookup(v.Fields.Fence)) }

// StoredClosed returns the flag of a closed account as it is stored.
func (v View) StoredClosed() bson.RawValue { return v.Stored.Lookup(v.Fields.Closed) }

// Closed reports whether the account is closed.
func (v View) Closed() bool { return isSet(v.StoredClosed()) }

// StoredFrozen returns the flag of a frozen account as it is stored.
func (v View) StoredFrozen() bson.RawValue { return v.Stored.Lookup(v.Fields.Frozen) }

// Frozen reports whether the account is frozen.
func (v View) Frozen() bool { return isSet(v.StoredFrozen()) }

// isSet judges a flag like the filter, which looks into an array.
func isSet(stored bson.RawValue) bool {
	list, isList := stored.ArrayOK()
	if !isList {
		return isTrue(stored)
	}
	values, _ := list.Values()
	return slices.ContainsFunc(values, isTrue)
}

func isTrue(value bson.RawValue) bool {
	flag, ok := value.BooleanOK()
	return ok && flag
}

// StoredCurrency returns the currency as it is stored.
func (v View) StoredCurrency() bson.RawValue { return v.Stored.Lookup(v.Fields.Currency) }

// CurrencyText returns the currency, "" where none is stored.
// A symbol counts as its text, as the server takes the two for equal.
// It reports false where something else is stored.
func (v View) CurrencyText() (string, bool) {
	stored := v.StoredCurrency()
	if Absent(stored) {
		return "", true
	}
	if text, ok := stored.StringValueOK(); ok {
		return text, true
	}
	return stored.SymbolOK()
}

// HasCurrency reports whether the currency is the given one.
func (v View) HasCurrency(currency string) bool {
	text, ok := v.CurrencyText()
	return ok && text == currency
}

// Currency returns the currency in words that can be passed on.
// What is no text is named by its type, and as what it is.
func (v View) Currency() string {
	if text, ok := v.CurrencyText(); ok {
		return text
	}
	return "no string (" + v.StoredCurrency().Type.String() + ")"
}

// Pending returns what is stored where the map of markers should be.
func (v View) Pending() bson.RawValue { return v.Stored.Lookup(v.Fields.Pending) }

// HasMap reports whether the markers are a map, or missing.
func (v View) HasMap() bool {
	pending := v.Pending()
	return Absent(pending) || pending.Type == bson.TypeEmbeddedDocument
}

// Markers are what a participant's map of markers says about one transfer.
type Markers struct {
	// Count is the number of transfers in flight. Those with a done mark are not.
	Count int
	// Own is the trace of the given transfer.
	Own protocol.Trace
}

// Markers counts the transfers in flight, and looks for the given one.
func (v View) Markers(transferID string) Markers {
	var found Markers
	if !v.HasMap() {
		found.Own = protocol.Illegible
		return found
	}
	pending, _ := v.Pending().DocumentOK()
	own := MarkerKey(transferID)
	for _, e := range wire.Elements(pending) {
		key, done := CutDone(e.Key())
		switch {
		case done && key == own:
			found.Own = protocol.Done
		case done:
		case key == own:
			found.Own = protocol.Reserved
			fallthrough
		default:
			found.Count++
		}
	}
	return found
}

// Marker returns the value of a transfer's marker, the zero value if it has none.
func (v View) Marker(transferID string) bson.RawValue {
	pending, _ := v.Pending().DocumentOK()
	return pending.Lookup(MarkerKey(transferID))
}

// InFlight returns the IDs of the transfers that have a marker, and not those that have a
// done mark.
// A key that spells no ID is left out.
func (v View) InFlight() []string {
	pending, _ := v.Pending().DocumentOK()
	elements := wire.Elements(pending)
	if len(elements) == 0 {
		return nil
	}
	ids := make([]string, 0, len(elements))
	for _, element := range elements {
		if id, ok := spelledID(element.Key()); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// Paid is a done mark: a transfer that is settled at a participant, and not cleared.
type Paid struct {
	// Transfer is its ID.
	Transfer string
	// Amount is what was paid in.
	Amount bson.RawValue
}

// Paid returns the done marks.
// A key that spells no ID is left out.
func (v View) Paid() []Paid {
	pending, _ := v.Pending().DocumentOK()
	var all []Paid
	for _, element := range wire.Elements(pending) {
		key, done := CutDone(element.Key())
		if id, ok := spelledID(key); done && ok {
			all = append(all, Paid{id, element.Value()})
		}
	}
	return all
}

// Reservation returns how the document of an effect, or the original of a reversal, is
// not free for a transfer: which other one has reserved it, or what is stored in place of
// the map of markers.
func (v View) Reservation(transferID string) *Unmet {
	pending := v.Pending()
	markers, ok := pending.DocumentOK()
	if !ok {
		return &Unmet{Field: v.Fields.Pending, Got: pending}
	}
	own := MarkerKey(transferID)
	for _, marker := range wire.Elements(markers) {
		key := marker.Key()
		if _, done := CutDone(key); done || key == own {
			continue
		}
		if id, ok := spelledID(key); ok {
			key = id
		}
		return &Unmet{ReservedBy: key}
	}
	return &Unmet{}
}

// Unmet says how the document of an effect, or the original of a reversal, is not as
// required.
// The zero value says that it is.
type Unmet struct {
	// Missing says that there is no document.
	Missing bool
	// ReservedBy is the transfer that has reserved it.
	ReservedBy string
	// Field is the name of a field that has another value.
	Field string
	// Want is the required value, and Got the stored one.
	Want, Got bson.RawValue
}
