package mongostore

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// Transfer is a document of the transfers collection.
type Transfer struct {
	ID           string         `bson:"_id"`
	State        protocol.State `bson:"state"`
	Open         bool           `bson:"open,omitempty"` // until finished: the index of unfinished work stands on it
	Legs         []Leg          `bson:"legs"`
	Effects      []Effect       `bson:"effects,omitempty"`
	Currency     string         `bson:"currency,omitempty"`
	Digest       []byte         `bson:"digest"`
	Epoch        int64          `bson:"epoch"` // 0 while Initiated
	Owner        string         `bson:"owner,omitempty"`
	Attempts     int64          `bson:"attempts,omitempty"` // takeovers because it had stalled
	Clean        bool           `bson:"clean,omitempty"`    // held or decided at epoch 1 with every prepare answered
	CreatedAt    time.Time      `bson:"createdAt"`          // the process's clock, corrected by the server's
	LastModified time.Time      `bson:"lastModified"`       // the server's clock from the second write on; held or final, as CreatedAt
	CommittedAt  time.Time      `bson:"committedAt,omitempty"`
	NotBefore    time.Time      `bson:"notBefore,omitempty"`
	Failure      *Failure       `bson:"failure,omitempty"`
	Metadata     bson.Raw       `bson:"metadata,omitempty"`
	Stuck        *Failure       `bson:"stuck,omitempty"`   // why it could not be finished when it was last tried; unset by the finish
	StuckAt      time.Time      `bson:"stuckAt,omitempty"` // when it was first tried in vain for that reason; the server's clock
	PurgeAt      time.Time      `bson:"purgeAt,omitempty"` // set by the finish: when the server removes it

	Hold      bool          `bson:"hold,omitempty"`
	Held      bool          `bson:"held,omitempty"`      // everything is prepared
	ExpiresAt time.Time     `bson:"expiresAt,omitempty"` // of a hold
	Posted    *money.Amount `bson:"posted,omitempty"`    // of a hold of which a part was posted: what moves, of two legs
	AtMost    *money.Amount `bson:"atMost,omitempty"`    // what was asked for, where the legs move what was there

	Reverses   string   `bson:"reverses,omitempty"`   // the transfer that this one reverses
	ReversedBy string   `bson:"reversedBy,omitempty"` // the transfer that has reversed this one
	Pending    bson.Raw `bson:"pending,omitempty"`    // the marker of a reversal under way
}

// Addresses returns the ledgers and collections of documents that the transfer touches, each once.
func (t Transfer) Addresses() []Address {
	var places []Address
	add := func(p Address) {
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	for _, leg := range t.Legs {
		add(Address{Name: leg.Ledger})
	}
	for _, e := range t.Effects {
		add(Address{Documents: true, Name: e.Documents})
	}
	return places
}

// Moved returns the movements that a success stands for: the legs; of a hold of which a part was posted, that part.
func (t Transfer) Moved() []Leg {
	if t.Posted == nil {
		return t.Legs
	}
	moved := slices.Clone(t.Legs)
	for i := range moved {
		moved[i].Amount = *t.Posted
		if t.Legs[i].Amount.Sign() < 0 {
			moved[i].Amount = t.Posted.Neg()
		}
	}
	return moved
}

// SoundPart reports whether what is said to be posted, if anything is, is a part of what a hold of two legs holds: more than nothing, and
// less than all.
func (t Transfer) SoundPart() bool {
	if t.Posted == nil {
		return true
	}
	if !t.Hold || len(t.Legs) != 2 || t.Posted.Kind() != t.Legs[0].Amount.Kind() {
		return false
	}
	held := t.Legs[0].Amount
	if held.Sign() < 0 {
		held = held.Neg()
	}
	return t.Posted.Sign() > 0 && t.Posted.Cmp(held) < 0
}

// DecidedBefore reports whether a decision is stored that the state knows nothing of: somebody has set the state back.
func (t Transfer) DecidedBefore() bool {
	return !t.CommittedAt.IsZero() && !t.State.Forward() || t.Failure != nil && !t.State.Back()
}

// SoundDecision reports whether a decision is stored, the time of a commit or the reason of a failure, just where the state says so.
func (t Transfer) SoundDecision() bool {
	return !t.CommittedAt.IsZero() == t.State.Forward() && (t.Failure != nil) == t.State.Back()
}

// Reserved reports whether a reversal has reserved the transfer.
func (t Transfer) Reserved() bool { return len(elements(t.Pending)) > 0 }

// Leg is one movement as it is stored.
type Leg struct {
	Ledger    string       `bson:"ledger"`
	Namespace string       `bson:"ns"`
	Account   string       `bson:"account"`
	Amount    money.Amount `bson:"amount"`
}

// Effect is a change of a document as it is stored.
type Effect struct {
	Documents string        `bson:"documents"` // the registered name
	Namespace string        `bson:"ns"`
	ID        bson.RawValue `bson:"id"`
	Require   bson.Raw      `bson:"require,omitempty"`
	Set       bson.Raw      `bson:"set,omitempty"`
}

// Failure says why a transfer was rolled back.
type Failure struct {
	Code    string `bson:"code"`
	Ledger  string `bson:"ledger"`
	Account string `bson:"account"`
	Message string `bson:"message"`
	Detail  string `bson:"detail,omitempty"` // what the message leaves open
	Others  int64  `bson:"others,omitempty"` // participants that would have been refused as well
}

// encode writes a new transfer down, as the tags of its type say.
func (t *Transfer) encode() bson.Raw {
	m := newMessage(512 + len(t.Metadata) + 128*(len(t.Legs)+len(t.Effects)))
	m.text("_id", t.ID)
	m.text("state", string(t.State))
	m.flag("open", t.Open)
	m.beginArray("legs")
	for i, leg := range t.Legs {
		m.begin(index(i))
		m.text("ledger", leg.Ledger)
		m.text("ns", leg.Namespace)
		m.text("account", leg.Account)
		m.amount("amount", leg.Amount)
		m.end()
	}
	m.end()
	writeEffects(m, t.Effects)
	if t.Currency != "" {
		m.text("currency", t.Currency)
	}
	m.binary("digest", t.Digest)
	m.number("epoch", t.Epoch)
	if t.Owner != "" {
		m.text("owner", t.Owner)
	}
	m.date("createdAt", t.CreatedAt)
	m.date("lastModified", t.LastModified)
	if !t.NotBefore.IsZero() {
		m.date("notBefore", t.NotBefore)
	}
	if t.Hold {
		m.flag("hold", true)
		m.date("expiresAt", t.ExpiresAt)
	}
	if t.AtMost != nil {
		m.amount("atMost", *t.AtMost)
	}
	if t.Reverses != "" {
		m.text("reverses", t.Reverses)
	}
	if len(t.Metadata) > 0 {
		m.document("metadata", t.Metadata)
	}
	m.end()
	return m.data
}

func writeEffects(m *message, effects []Effect) {
	if len(effects) == 0 {
		return
	}
	m.beginArray("effects")
	for i, e := range effects {
		m.begin(index(i))
		m.text("documents", e.Documents)
		m.text("ns", e.Namespace)
		m.value("id", e.ID)
		if len(e.Require) > 0 {
			m.document("require", e.Require)
		}
		if len(e.Set) > 0 {
			m.document("set", e.Set)
		}
		m.end()
	}
	m.end()
}

// write writes a failure down as a field.
func (f Failure) write(m *message, field string) {
	m.begin(field)
	m.text("code", f.Code)
	m.text("ledger", f.Ledger)
	m.text("account", f.Account)
	m.text("message", f.Message)
	if f.Detail != "" {
		m.text("detail", f.Detail)
	}
	if f.Others > 0 {
		m.number("others", f.Others)
	}
	m.end()
}

// ErrUnreadable is returned for a document that is no transfer, or one of a version to come.
var ErrUnreadable = errors.New("the stored transfer can't be read")

// unreadable is why a document is no transfer. What is stored where something else should
// be is not told: the driver has it in its error.
type unreadable struct {
	id    bson.RawValue
	cause error
}

// Error tells the field. The ID is told by who has asked for it, unless it is the ID that
// can't be read.
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

// decodeTransfer reads a stored transfer.
func decodeTransfer(document bson.Raw) (Transfer, error) {
	var t Transfer
	if err := bson.Unmarshal(document, &t); err != nil {
		return t, &unreadable{document.Lookup("_id"), err}
	}
	return t, nil
}

// image tells the protocol what a document shows.
func (w *Attempt) image(t Transfer) protocol.Image {
	return protocol.Image{Found: true, State: t.State, Epoch: t.Epoch, Mine: t.Owner == w.Owner, Held: t.Held, Clean: t.Clean}
}

// Seen returns the balance that the latest look at a participant showed.
func (w *Attempt) Seen(participant int) (money.Amount, bool) {
	if participant < 0 || participant >= len(w.participants) || w.participants[participant].balance == nil {
		return money.Amount{}, false
	}
	amount, err := money.FromBSON(*w.participants[participant].balance)
	return amount, err == nil
}
