package transfer

import (
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// State is where a transfer stands.
// It is stored as this word.
//
//	            claim              the record            all cleared
//	Initiated ─────────▶ Preparing ───────────▶ Committed ───────────▶ Success
//	    │                    │ refused, cancelled
//	    │ cancelled          ▼            all undone
//	    └────────────────▶ Rollback ─────────────────────▶ Fail
type State string

const (
	// StateInitiated means that Submit has stored the transfer, and that no account knows
	// of it.
	// After a crash the next worker takes it.
	StateInitiated State = State(protocol.Initiated)
	// StatePreparing means that money is being reserved, or that all of it is, which is
	// the commit, and the record of that is not stored yet.
	// A crash leaves markers in some accounts; Recover goes on with the transfer, or
	// rolls it back, as the policy says.
	// What is committed is never rolled back, whatever the policy is.
	StatePreparing State = State(protocol.Preparing)
	// StateCommitted means that the transfer will happen, or has happened.
	// Some accounts may still have marks of it.
	// A crash leaves them; Recover pays what is not paid, and removes them.
	StateCommitted State = State(protocol.Committed)
	// StateSuccess means that the money has moved, and that nothing is left to be done.
	// It is final.
	StateSuccess State = State(protocol.Success)
	// StateRollback means that the transfer will not happen.
	// A crash leaves markers; Recover undoes them.
	StateRollback State = State(protocol.Rollback)
	// StateFail means that nothing moved.
	// It is final.
	StateFail State = State(protocol.Fail)
)

// Final reports whether the state never changes again.
func (s State) Final() bool { return protocol.State(s).Final() }

// Decided reports whether the transfer is committed: the money has moved, or will, for
// good.
func (s State) Decided() bool { return protocol.State(s).Forward() }

// Record is a transfer as it is stored.
type Record struct {
	// ID is the transfer's ID.
	ID string
	// State is where the transfer stands.
	State State
	// Legs are the movements, one per account.
	// Of a hold they are what is held, or was, also if a part was posted: see
	// [Record.Moved].
	// Each has its currency, whether the request named it with the leg or not.
	Legs []Leg
	// Effects are the documents that change with the money.
	Effects []Effect
	// Currency is the currency of all legs, "" if they have none.
	// Where they have several, it is the one of the request.
	Currency string
	// Metadata is what was stored with the transfer.
	Metadata map[string]any
	// Epoch is 0 before the claim, 1 from then on, and one more with every takeover and
	// every [Coordinator.Extend].
	Epoch int64
	// Owner is the execution that has claimed the transfer last.
	Owner string
	// CreatedAt is when the transfer was stored, by the server's clock.
	CreatedAt time.Time
	// LastModified is when the transfer was written last, by the server's clock.
	// Of what is held, or final, it is by the process's clock, corrected like CreatedAt.
	LastModified time.Time
	// CommittedAt is when the commit was recorded, by the server's clock.
	// Statements are in the order of these times.
	// It is zero before, and in an answer that comes sooner than the record: see
	// [WithReturnAt].
	// In the answer of the call that has recorded the commit it is that call's estimate,
	// a moment early; [Coordinator.Get] reads the time that is stored.
	CommittedAt time.Time
	// Failure says why the transfer was rolled back.
	// It is set in StateRollback and StateFail.
	Failure *Failure
	// Stuck says why the transfer could not be finished when that was last tried.
	// It is nil once the transfer is final.
	Stuck *Failure
	// Attempts counts how often the transfer was taken over because it had stalled.
	Attempts int
	// NotBefore is when a worker may begin with the transfer.
	// The zero time means at once.
	NotBefore time.Time
	// AwaitFundsUntil is how long the transfer waits for funds, as Submit has stored it.
	// The zero time means that it doesn't wait.
	AwaitFundsUntil time.Time
	// Waiting says whose money a worker has found lacking, in the form of a refusal.
	// Nothing is refused: it is set in StateInitiated, until the transfer is run.
	Waiting *Failure
	// NextTry is when a worker reads the accounts again, at the latest.
	// It is zero where Waiting is nil.
	NextTry time.Time
	// Postponed counts how often a worker has found money lacking, and put the transfer
	// off.
	Postponed int
	// PurgeAt is when the transfer is removed, and its ID forgotten.
	// It is zero while the transfer is not final, or one of its events waits to be
	// delivered, and always without [WithRetention].
	PurgeAt time.Time
	// Reverses is the ID of the transfer that this one reverses.
	Reverses string
	// ReversedBy is the ID of the transfer that has taken the last of this one back.
	// It is "" while something is left to be reversed.
	ReversedBy string
	// Reversed is what was taken back of a transfer between two accounts.
	// It counts reversals that have succeeded, as ReversedLegs does.
	Reversed Amount
	// ReversedLegs are what all reversals together have moved, by account: who was paid
	// has a negative leg.
	// What is left of an account's part is what the transfer has moved there, plus this.
	// It is nil where nothing was taken back.
	ReversedLegs []Leg
	// Hold says that the transfer was requested by Hold.
	Hold bool
	// Held says that the hold is held now: its money is reserved, and it is neither
	// posted nor voided.
	// One that has expired is held until Run or Recover voids it.
	Held bool
	// ExpiresAt is when a hold is voided unless it is decided before.
	// The first call of Hold has set it, or the latest [Coordinator.Extend].
	ExpiresAt time.Time
	// Posted is what a hold between two accounts has moved, once it is posted: all that
	// was held, or a part.
	// It is nil before that, for a hold with more legs, whose Post moves all of them, and
	// for what is no hold.
	Posted *Amount
	// Undelivered are the events of the transfer that were not delivered when it was
	// read: see [WithEvents].
	Undelivered []UndeliveredEvent
}

// Moved returns what the transfer has moved, or is about to: its legs, or the part of
// them that was posted of a hold.
// It is nil before the commit, and for what has failed.
// What was reversed since is in ReversedLegs, and still counts as moved here.
func (r Record) Moved() []Leg {
	if !r.State.Decided() {
		return nil
	}
	moved := slices.Clone(r.Legs)
	if r.Posted == nil {
		return moved
	}
	for i, leg := range moved {
		moved[i].Amount = *r.Posted
		if leg.Amount.Sign() < 0 {
			moved[i].Amount = r.Posted.Neg()
		}
	}
	return moved
}

// Failure says why a transfer was rolled back, or is stuck.
type Failure struct {
	// Code is the error's name without Err, in lower camel case: insufficientFunds,
	// accountClosed, cancelled; or it is stalled.
	// A stuck transfer has accountNotFound, requirementFailed for the document of an
	// effect, unwritable, or unauthorized where the process lacks a right.
	Code string
	// Ledger is that of the account that is the cause, if an account is.
	// For an effect it is the name of the documents.
	Ledger string
	// Account is the ID of the account that is the cause, or of the effect's document, as
	// in [RefusedError].
	Account string
	// Message says it in words.
	Message string
	// Detail says more than Message where there is more to say.
	// It names some of the Others.
	Detail string
	// Others counts the other accounts and documents of the transfer that would have been
	// refused as well.
	Others int
}

func recordOf(t document.Transfer) Record {
	r := Record{
		ID: t.ID, State: State(t.State), Currency: t.Currency, Epoch: t.Epoch, Owner: t.Owner,
		CreatedAt: t.CreatedAt, LastModified: t.LastModified, Attempts: int(t.Attempts),
		NotBefore: t.NotBefore, PurgeAt: t.PurgeAt, CommittedAt: t.CommittedAt,
		Failure: failureOf(t.Failure), Stuck: failureOf(t.Stuck),
		Reverses: t.Reverses, ReversedBy: t.WhollyReversedBy(), Reversed: Amount{t.ReversedAmount()},
		Hold: t.Hold, Held: t.HeldNow(), ExpiresAt: t.ExpiresAt,
		Effects: effectsOf(t), Legs: legsFrom(t.PlannedMovements()), Undelivered: undeliveredOf(t),
	}
	if posted := t.PostedAmount(); posted != nil {
		r.Posted = &Amount{*posted}
	}
	if reversed := t.ReversedLegs(); len(reversed) > 0 {
		r.ReversedLegs = legsFrom(reversed)
	}
	if currency, one := t.OneCurrency(); one {
		r.Currency = currency
	}
	r.addPatience(t)
	r.Metadata = decodeMetadata(t.Metadata)
	return r
}

// addPatience adds how long a transfer waits for funds, and since when it does.
func (r *Record) addPatience(t document.Transfer) {
	r.AwaitFundsUntil, r.Postponed = t.FundsUntil, int(t.Postponed)
	if t.Postponed == 0 {
		return
	}
	r.NotBefore = t.AskedNotBefore
	if t.State == protocol.Initiated {
		r.Waiting, r.NextTry = failureOf(t.Waiting), t.NotBefore
	}
}

// legsFrom returns movements as the API has them.
func legsFrom(stored []document.Leg) []Leg {
	legs := make([]Leg, len(stored))
	for i, leg := range stored {
		legs[i] = Leg{
			Ledger: leg.Ledger, Account: leg.Account, Amount: Amount{leg.Amount}, Currency: leg.Currency,
		}
	}
	return legs
}

func failureOf(stored *document.Failure) *Failure {
	if stored == nil {
		return nil
	}
	return &Failure{
		Code: stored.Code, Ledger: stored.Ledger, Account: stored.Account, Message: stored.Message,
		Detail: stored.Detail, Others: int(stored.Others),
	}
}
