package document

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Encode encodes a new transfer, as the tags of its type say.
func (t *Transfer) Encode() bson.Raw {
	m := wire.NewMessage(340 + len(t.ID) + len(t.Owner) + len(t.Currency) + len(t.Reverses) + t.listBytes())
	m.Text("_id", t.ID)
	m.Text("state", string(t.State))
	m.Flag("open", t.Open)
	writeLegs(m, "legs", t.Legs)
	writeEffects(m, t.Effects)
	if t.Currency != "" {
		m.Text("currency", t.Currency)
	}
	t.Digest.Write(m, "digest")
	m.Number("epoch", t.Epoch)
	if t.Owner != "" {
		m.Text("owner", t.Owner)
	}
	m.Date("createdAt", t.CreatedAt)
	m.Date("lastModified", t.LastModified)
	if !t.NotBefore.IsZero() {
		m.Date("notBefore", t.NotBefore)
	}
	if !t.FundsUntil.IsZero() {
		m.Date("fundsUntil", t.FundsUntil)
	}
	if t.Hold {
		m.Flag("hold", true)
		m.Date("expiresAt", t.ExpiresAt)
	}
	if t.AtMost != nil {
		m.Amount("atMost", *t.AtMost)
	}
	if t.Reverses != "" {
		m.Text("reverses", t.Reverses)
	}
	if t.Part {
		m.Flag("part", true)
	}
	if len(t.Whole) > 0 {
		writeLegs(m, "whole", t.Whole)
	}
	if len(t.Metadata) > 0 {
		m.Document("metadata", t.Metadata)
	}
	m.End()
	return m.Data
}

func writeLegs(m *wire.Message, field string, legs []Leg) {
	m.BeginArray(field)
	for i, leg := range legs {
		m.Begin(wire.Index(i))
		m.Text("ledger", leg.Ledger)
		m.Text("ns", leg.Namespace)
		m.Text("account", leg.Account)
		m.Amount("amount", leg.Amount)
		if leg.Currency != "" {
			m.Text("currency", leg.Currency)
		}
		m.End()
	}
	m.End()
}

func writeEffects(m *wire.Message, effects []Effect) {
	if len(effects) == 0 {
		return
	}
	m.BeginArray("effects")
	for i, e := range effects {
		m.Begin(wire.Index(i))
		m.Text("documents", e.Documents)
		m.Text("ns", e.Namespace)
		m.Value("id", e.ID)
		if len(e.Require) > 0 {
			m.Document("require", e.Require)
		}
		if len(e.Set) > 0 {
			m.Document("set", e.Set)
		}
		m.End()
	}
	m.End()
}

// Write writes the failure as a field.
func (f Failure) Write(m *wire.Message, field string) {
	m.Begin(field)
	m.Text("code", f.Code)
	m.Text("ledger", f.Ledger)
	m.Text("account", f.Account)
	m.Text("message", f.Message)
	if f.Detail != "" {
		m.Text("detail", f.Detail)
	}
	if f.Others > 0 {
		m.Number("others", f.Others)
	}
	m.End()
}

// ErrUnreadable is returned for a document that is no transfer, or one of a version to
// come.
var ErrUnreadable = errors.New("the stored transfer can't be read")

// unreadable is why a document is no transfer. It does not show the value that is stored
// where something else should be, which the driver has in its error.
type unreadable struct {
	id    bson.RawValue
	cause error
}

// Error names the field. The caller who has asked for the transfer names its ID, unless
// it is the ID that can't be read.
func (e *unreadable) Error() string {
	var field *bson.DecodeError
	switch text := ErrUnreadable.Error() + ": "; {
	case !errors.As(e.cause, &field):
		return text + "it is damaged"
	case e.id.Type != bson.TypeString:
		return text + "its _id is " + words.Clip(IDText(e.id)) + ", and no text"
	default:
		return text + "see its field " + words.Quote(strings.Join(field.Keys(), "."))
	}
}

// Unwrap returns ErrUnreadable, and the driver's error.
func (e *unreadable) Unwrap() []error { return []error{ErrUnreadable, e.cause} }

// DecodeTransfer reads a stored transfer.
func DecodeTransfer(document bson.Raw) (Transfer, error) {
	var t Transfer
	if err := bson.Unmarshal(document, &t); err != nil {
		return t, &unreadable{document.Lookup("_id"), err}
	}
	return t, nil
}
