// Package document holds the stored forms as values: the transfer, the account, the leg,
// the effect, IDs, marker keys, and the filters that they are found by. It does no I/O.
package document

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// RepairedCode is the failure code of a transfer that stands for one whose document is lost.
const RepairedCode = "repaired"

// Tombstone reports whether the transfer stands for one whose document is lost.
func (t *Transfer) Tombstone() bool {
	return t.State == protocol.Fail && t.Failure != nil && t.Failure.Code == RepairedCode
}

// HeldNow reports whether a transfer is a hold that is held.
func (t *Transfer) HeldNow() bool { return t.Hold && t.Held && t.State == protocol.Preparing }

// Size returns about what a transfer takes as it is stored.
func (t *Transfer) Size() int {
	const around = 512
	sum := around + len(t.Metadata)
	for _, leg := range t.Legs {
		sum += 2*wire.ElementBytes + len(leg.Ledger) + len(leg.Namespace) + len(leg.Account)
	}
	for _, e := range t.Effects {
		sum += 2*wire.ElementBytes + len(e.Documents) + len(e.Namespace) + len(e.ID.Value) + len(e.Require) + len(e.Set)
	}
	return sum
}

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
	var all []Address
	for p := range t.Participants() {
		if a, registered := p.Address(); registered && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
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
func (t Transfer) Reserved() bool { return len(wire.Elements(t.Pending)) > 0 }

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

// Encode writes a new transfer down, as the tags of its type say.
func (t *Transfer) Encode() bson.Raw {
	m := wire.NewMessage(512 + len(t.Metadata) + 128*(len(t.Legs)+len(t.Effects)))
	m.Text("_id", t.ID)
	m.Text("state", string(t.State))
	m.Flag("open", t.Open)
	m.BeginArray("legs")
	for i, leg := range t.Legs {
		m.Begin(wire.Index(i))
		m.Text("ledger", leg.Ledger)
		m.Text("ns", leg.Namespace)
		m.Text("account", leg.Account)
		m.Amount("amount", leg.Amount)
		m.End()
	}
	m.End()
	writeEffects(m, t.Effects)
	if t.Currency != "" {
		m.Text("currency", t.Currency)
	}
	m.Binary("digest", t.Digest)
	m.Number("epoch", t.Epoch)
	if t.Owner != "" {
		m.Text("owner", t.Owner)
	}
	m.Date("createdAt", t.CreatedAt)
	m.Date("lastModified", t.LastModified)
	if !t.NotBefore.IsZero() {
		m.Date("notBefore", t.NotBefore)
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
	if len(t.Metadata) > 0 {
		m.Document("metadata", t.Metadata)
	}
	m.End()
	return m.Data
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

// Write writes a failure down as a field.
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

// DecodeTransfer reads a stored transfer.
func DecodeTransfer(document bson.Raw) (Transfer, error) {
	var t Transfer
	if err := bson.Unmarshal(document, &t); err != nil {
		return t, &unreadable{document.Lookup("_id"), err}
	}
	return t, nil
}
