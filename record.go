package transfer

import (
	"time"

	"github.com/mongotransfer/transfer/internal/document"
)

// Record is a transfer as it is stored.
type Record struct {
	ID           string
	State        State
	Legs         []Leg // netted: one per account; of a hold that was posted in part, what was posted
	Effects      []Effect
	Currency     string
	Metadata     map[string]any
	Epoch        int64  // 0 before the claim, 1 from then on, one more with every takeover
	Owner        string // who claimed it last
	CreatedAt    time.Time
	LastModified time.Time // by the server's clock; of what is held, or final, by the process's, corrected like CreatedAt
	Failure      *Failure  // in StateRollback and StateFail
	Stuck        *Failure  // why it could not be finished when it was last tried; nil once it is final
	Attempts     int       // how often it was taken over because it had stalled
	NotBefore    time.Time // when a worker may begin with it; zero: at once
	PurgeAt      time.Time // when it is removed, and its ID forgotten; zero: not before it is final, and never without [WithRetention]
	Reverses     string    // the ID of the transfer that this one reverses
	ReversedBy   string    // the ID of the transfer that has reversed this one
	Hold         bool      // it was asked for by Hold
	ExpiresAt    time.Time // of a hold: when it is voided unless it is decided before; as the first to ask for it has said
}

// Failure says why a transfer was rolled back, or is stuck.
type Failure struct {
	// Code is the error's name without Err, in lower camel case: insufficientFunds, accountClosed, cancelled; or stalled. What is stuck has
	// accountNotFound, requirementFailed for the document of an effect, or unwritable.
	Code            string
	Ledger, Account string // the account that is the cause, if one is; of an effect, the names of the documents and of the document
	Message         string
	// Detail says more than Message where there is more to say. Others is how many other
	// accounts and documents of the transfer would have been refused as well; Detail
	// names some of them.
	Detail string
	Others int
}

func recordOf(t document.Transfer) Record {
	r := Record{
		ID: t.ID, State: State(t.State), Currency: t.Currency, Epoch: t.Epoch, Owner: t.Owner,
		CreatedAt: t.CreatedAt, LastModified: t.LastModified, Attempts: int(t.Attempts), NotBefore: t.NotBefore, PurgeAt: t.PurgeAt,
		Failure: failureOf(t.Failure), Stuck: failureOf(t.Stuck),
		Reverses: t.Reverses, ReversedBy: t.ReversedBy, Hold: t.Hold, ExpiresAt: t.ExpiresAt, Effects: effectsOf(t),
		Legs: make([]Leg, len(t.Legs)),
	}
	for i, leg := range t.Moved() {
		r.Legs[i] = Leg{Ledger: leg.Ledger, Account: leg.Account, Amount: Amount{leg.Amount}}
	}
	r.Metadata = decodeMetadata(t.Metadata)
	return r
}

func failureOf(stored *document.Failure) *Failure {
	if stored == nil {
		return nil
	}
	return &Failure{Code: stored.Code, Ledger: stored.Ledger, Account: stored.Account, Message: stored.Message,
		Detail: stored.Detail, Others: int(stored.Others)}
}
