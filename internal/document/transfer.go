// Package document holds the stored forms as values: the transfer, the account, the leg,
// the effect, IDs, marker keys, and the filters that they are found by. It does no I/O.
package document

import (
	"cmp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// RepairedCode is the failure code of a transfer that stands for one whose document is
// lost.
const RepairedCode = "repaired"

// UnauthorizedCode is the code of a stored reason where the client lacks a right.
const UnauthorizedCode = "unauthorized"

// Tombstone reports whether the transfer stands for one whose document is lost.
func (t *Transfer) Tombstone() bool {
	return t.State == protocol.Fail && t.Failure != nil && t.Failure.Code == RepairedCode
}

// HeldNow reports whether a transfer is a hold that is held.
func (t *Transfer) HeldNow() bool { return t.Hold && t.Held && t.State == protocol.Preparing }

// Size returns about what a transfer takes as it is stored.
func (t *Transfer) Size() int {
	const around = 512
	return around + t.listBytes()
}

// listBytes returns about what the lists and the metadata of a transfer take.
func (t *Transfer) listBytes() int {
	sum := len(t.Metadata)
	for _, legs := range [...][]Leg{t.Legs, t.Whole} {
		for _, leg := range legs {
			sum += 2*wire.ElementBytes + len(leg.Ledger) + len(leg.Namespace) + len(leg.Account)
			if leg.Currency != "" {
				sum += wire.ElementBytes + len(leg.Currency)
			}
		}
	}
	for _, e := range t.Effects {
		sum += 2*wire.ElementBytes + len(e.Documents) + len(e.Namespace) + len(e.ID.Value) + len(e.Require) + len(e.Set)
	}
	return sum
}

// Transfer is a document of the transfers collection.
type Transfer struct {
	// ID is the caller's.
	ID string `bson:"_id"`
	// State is how far it has come.
	State protocol.State `bson:"state"`
	// Open is set until the transfer is finished: the index of unfinished work stands on
	// it.
	Open bool `bson:"open,omitempty"`
	// Legs are the movements, and Effects the changes of documents.
	Legs    []Leg    `bson:"legs"`
	Effects []Effect `bson:"effects,omitempty"`
	// Currency is required of each account whose leg has none of its own.
	Currency string `bson:"currency,omitempty"`
	// Digest stands for what was asked for.
	Digest Digest `bson:"digest"`
	// Epoch counts the claims: it is 0 while Initiated.
	Epoch int64 `bson:"epoch"`
	// Owner is the execution that has claimed it last.
	Owner string `bson:"owner,omitempty"`
	// Attempts counts the takeovers because it had stalled.
	Attempts int64 `bson:"attempts,omitempty"`
	// Clean says that it was held or decided at epoch 1 with every prepare answered.
	Clean bool `bson:"clean,omitempty"`
	// CreatedAt is a time of the process's clock, corrected by the server's.
	CreatedAt time.Time `bson:"createdAt"`
	// LastModified is a time of the server's clock from the second write on; when the
	// transfer is held or final, one like CreatedAt.
	LastModified time.Time `bson:"lastModified"`
	// CommittedAt is the server's time of the decision.
	CommittedAt time.Time `bson:"committedAt,omitempty"`
	// NotBefore is the time of a scheduled transfer.
	// Once the transfer was put off, it is the time of the next look.
	NotBefore time.Time `bson:"notBefore,omitempty"`
	// FundsUntil is how long a submitted transfer waits for funds that are lacking.
	FundsUntil time.Time `bson:"fundsUntil,omitempty"`
	// Postponed counts how often it was put off, and Waiting is the latest reason.
	Postponed int64    `bson:"postponed,omitempty"`
	Waiting   *Failure `bson:"waiting,omitempty"`
	// AskedNotBefore is what NotBefore was before the transfer was first put off.
	AskedNotBefore time.Time `bson:"askedNotBefore,omitempty"`
	// Failure says why it was rolled back.
	Failure *Failure `bson:"failure,omitempty"`
	// Metadata is the user's.
	Metadata bson.Raw `bson:"metadata,omitempty"`
	// Stuck says why it could not be finished at the latest try; the finish unsets it.
	Stuck *Failure `bson:"stuck,omitempty"`
	// StuckAt is the server's time of the first try that failed for that reason.
	StuckAt time.Time `bson:"stuckAt,omitempty"`
	// PurgeAt is when the server removes it; the finish sets it.
	PurgeAt time.Time `bson:"purgeAt,omitempty"`

	// Hold says that the transfer is a hold, and Held that everything is prepared.
	Hold bool `bson:"hold,omitempty"`
	Held bool `bson:"held,omitempty"`
	// ExpiresAt is the end of a hold.
	ExpiresAt time.Time `bson:"expiresAt,omitempty"`
	// Posted is the posted part of a hold of two legs.
	Posted *money.Amount `bson:"posted,omitempty"`
	// AtMost is what was asked for, where the legs move what was there.
	AtMost *money.Amount `bson:"atMost,omitempty"`

	// Reverses is the transfer that this one reverses.
	// Part says that a part of it was asked for, by amount or by legs, and not all that
	// is left.
	Reverses string `bson:"reverses,omitempty"`
	Part     bool   `bson:"part,omitempty"`
	// Whole is what a reversal of all that is left would move if all were left, where
	// that is more than its legs.
	Whole []Leg `bson:"whole,omitempty"`
	// Plan counts how often such a reversal was planned anew, because less was left.
	Plan int64 `bson:"plan,omitempty"`
	// ReversedBy is the latest transfer that has reversed this one or a part of it.
	ReversedBy string `bson:"reversedBy,omitempty"`
	// Reversed is what the legs of all these have moved, by [Leg.ReversedKey].
	// Without it, what is reversed is reversed as a whole: so the release before stores
	// it.
	Reversed bson.Raw `bson:"reversed,omitempty"`
	// Pending has the marker of a reversal under way.
	Pending bson.Raw `bson:"pending,omitempty"`

	// Outbox has the events that are not delivered: see [Transfer.Undelivered].
	// Only once none of them waits any more, the server gets to see when the transfer is
	// to be purged: until then that is stored as keepUntil, and not as purgeAt.
	Outbox bson.RawValue `bson:"outbox,omitempty"`
}

// Addresses returns the ledgers and the collections of documents that the transfer
// changes, each once.
func (t Transfer) Addresses() []Address {
	var all []Address
	for p := range t.Participants() {
		if a, registered := p.Address(); registered && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// Advance takes over what one execution changes of its transfer.
//
// What does not change any more is left as it is, because operations on participants read
// it meanwhile: a transfer is recorded while it is paid.
func (t *Transfer) Advance(stored Transfer) {
	t.State, t.Open, t.Clean, t.Held = stored.State, stored.Open, stored.Clean, stored.Held
	t.LastModified, t.CommittedAt, t.ExpiresAt, t.PurgeAt = stored.LastModified, stored.CommittedAt, stored.ExpiresAt, stored.PurgeAt
	t.Failure, t.Stuck, t.StuckAt = stored.Failure, stored.Stuck, stored.StuckAt
	t.ReversedBy, t.Pending, t.Outbox = stored.ReversedBy, stored.Pending, stored.Outbox
}

// Moved returns the movements of a success: the legs, or the posted part of a partly
// posted hold.
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

// PostedAmount returns what a posted hold between two accounts has moved, the whole or a
// part, and nil for any other transfer.
func (t Transfer) PostedAmount() *money.Amount {
	if !t.Hold || !t.State.Forward() || len(t.Legs) != 2 {
		return nil
	}
	posted := t.Moved()[0].Amount
	if posted.Sign() < 0 {
		posted = posted.Neg()
	}
	return &posted
}

// CurrencyOf returns the currency of a leg: its own, or the transfer's.
func (t *Transfer) CurrencyOf(leg Leg) string { return cmp.Or(leg.Currency, t.Currency) }

// Movements returns what [Transfer.Moved] returns, each leg with its currency.
func (t Transfer) Movements() []Leg { return t.withCurrencies(t.Moved()) }

// PlannedMovements returns the legs, each with its currency: of a hold, what is held, or
// was.
func (t Transfer) PlannedMovements() []Leg { return t.withCurrencies(t.Legs) }

// withCurrencies returns legs of the transfer, each with its currency.
func (t *Transfer) withCurrencies(legs []Leg) []Leg {
	legs = slices.Clone(legs)
	for i := range legs {
		legs[i].Currency = t.CurrencyOf(legs[i])
	}
	return legs
}

// OneCurrency returns the currency that all legs have. It reports false where they have
// several: the transfer is an exchange.
func (t *Transfer) OneCurrency() (currency string, one bool) {
	if len(t.Legs) == 0 {
		return t.Currency, true
	}
	currency = t.CurrencyOf(t.Legs[0])
	for _, leg := range t.Legs[1:] {
		if t.CurrencyOf(leg) != currency {
			return "", false
		}
	}
	return currency, true
}

// ShareCurrency brings the currencies of the legs into the form in which they are stored:
// one that all legs have is the transfer's, and no leg repeats that of the transfer.
func (t *Transfer) ShareCurrency() {
	if currency, one := t.OneCurrency(); one {
		t.Currency = currency
	}
	for i := range t.Legs {
		if t.Legs[i].Currency == t.Currency {
			t.Legs[i].Currency = ""
		}
	}
}

// DueOnSettle returns what a participant with an amount is paid when its transfer is
// settled there: a credit.
// Where a part of a hold was posted, the credit is that part, and the rest is paid back
// to the account that was debited.
func DueOnSettle(amount money.Amount, posted *money.Amount) (money.Amount, error) {
	switch {
	case amount.Sign() > 0 && posted == nil:
		return amount, nil
	case amount.Sign() > 0:
		return *posted, nil
	case amount.Sign() < 0 && posted != nil:
		return amount.Neg().Add(posted.Neg())
	}
	return money.Zero(amount.Kind()), nil
}

// Losers returns the indexes of the legs that lose money.
func (t Transfer) Losers() []int {
	var losers []int
	for i, leg := range t.Legs {
		if leg.Amount.Sign() < 0 {
			losers = append(losers, i)
		}
	}
	return losers
}

// SoundPart reports whether what was posted, if anything is said to be, is a part of what
// a hold of two legs holds: more than nothing, and less than all.
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

// DecidedBefore reports whether a decision is stored that the state knows nothing of:
// somebody has set the state back.
func (t Transfer) DecidedBefore() bool {
	return !t.CommittedAt.IsZero() && !t.State.Forward() || t.Failure != nil && !t.State.Back()
}

// SoundDecision reports whether a decision is stored exactly where the state says so: the
// time of a commit, or the reason of a failure.
func (t Transfer) SoundDecision() bool {
	return !t.CommittedAt.IsZero() == t.State.Forward() && (t.Failure != nil) == t.State.Back()
}

// ReservedByOther returns the ID of a reversal that has reserved the transfer, other than
// the given one; "" if there is none.
func (t Transfer) ReservedByOther(id string) string {
	own := MarkerKey(id)
	for _, e := range wire.Elements(t.Pending) {
		key := e.Key()
		if _, done := CutDone(key); done || key == own {
			continue
		}
		if other, ok := spelledID(key); ok {
			return other
		}
		return key
	}
	return ""
}

// Leg is one movement as it is stored.
type Leg struct {
	// Ledger is the name under which the account's collection is registered.
	Ledger string `bson:"ledger"`
	// Namespace is the collection's database and name.
	Namespace string `bson:"ns"`
	// Account is the account's ID as the API has it.
	Account string `bson:"account"`
	// Amount is negative for a debit.
	Amount money.Amount `bson:"amount"`
	// Currency is required of the account. It is stored where it is another one than the
	// transfer's: see [Transfer.CurrencyOf].
	Currency string `bson:"currency,omitempty"`
}

// Effect is a change of a document as it is stored.
type Effect struct {
	// Documents is the name under which the document's collection is registered.
	Documents string `bson:"documents"`
	// Namespace is the collection's database and name.
	Namespace string `bson:"ns"`
	// ID is the document's, in its canonical form.
	ID bson.RawValue `bson:"id"`
	// Require are the values that its fields must have.
	Require bson.Raw `bson:"require,omitempty"`
	// Set are the values that its fields get.
	Set bson.Raw `bson:"set,omitempty"`
}

// Failure says why a transfer was rolled back.
type Failure struct {
	// Code names the reason.
	Code string `bson:"code"`
	// Ledger and Account are the participant that is to blame, "" if there is none.
	Ledger  string `bson:"ledger"`
	Account string `bson:"account"`
	// Message is the reason in words.
	Message string `bson:"message"`
	// Detail is what the message leaves open.
	Detail string `bson:"detail,omitempty"`
	// Others counts the other participants that would have been refused as well.
	Others int64 `bson:"others,omitempty"`
}
