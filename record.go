package transfer

import (
	"time"

	"github.com/mongotransfer/transfer/internal/mongostore"
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
	LastModified time.Time // by the server's clock; once it is final, by the process's, corrected like CreatedAt
	Failure      *Failure  // in StateRollback and StateFail
	Attempts     int       // takeovers so far
	Reverses     string    // the ID of the transfer that this one reverses
	ReversedBy   string    // the ID of the transfer that has reversed this one
	Hold         bool      // it was asked for by Hold
	ExpiresAt    time.Time // of a hold: when it is voided unless it is decided before
}

// Failure says why a transfer was rolled back.
type Failure struct {
	// Code is the error's name without Err, in lower camel case: insufficientFunds, accountClosed, cancelled; or stalled.
	Code            string
	Ledger, Account string // the account that refused, if one did
	Message         string
}

func recordOf(t mongostore.Transfer) Record {
	r := Record{
		ID: t.ID, State: State(t.State), Currency: t.Currency, Epoch: t.Epoch, Owner: t.Owner,
		CreatedAt: t.CreatedAt, LastModified: t.LastModified, Attempts: int(t.Attempts),
		Reverses: t.Reverses, ReversedBy: t.ReversedBy, Hold: t.Hold, ExpiresAt: t.ExpiresAt, Effects: effectsOf(t),
		Legs: make([]Leg, len(t.Legs)),
	}
	for i, leg := range t.Moved() {
		r.Legs[i] = Leg{Ledger: leg.Ledger, Account: leg.Account, Amount: Amount{leg.Amount}}
	}
	if t.Failure != nil {
		r.Failure = &Failure{
			Code: t.Failure.Code, Ledger: t.Failure.Ledger, Account: t.Failure.Account, Message: t.Failure.Message,
		}
	}
	r.Metadata = decodeMetadata(t.Metadata)
	return r
}
