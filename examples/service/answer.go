package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/mongotransfer/transfer"
)

// The states of a transfer in an answer.
// They are fewer than the library's, so that the answer to a repeated request is the
// same: what has moved stays moved, whatever is left to be done for it.
const (
	stateScheduled = "scheduled" // it waits for the worker
	statePending   = "pending"   // it is under way
	stateHeld      = "held"      // the money is reserved, or is being reserved, until it is posted
	stateMoved     = "moved"     // for good
	stateFailed    = "failed"    // for good, and nothing moved
)

// accountJSON is an account in an answer.
type accountJSON struct {
	ID string `json:"id"`
	// Available is what can be spent.
	Available transfer.Amount `json:"available"`
	// Posted is Available and the debits that are in flight.
	Posted transfer.Amount `json:"posted"`
	// Incoming is the sum of the credits that are in flight.
	Incoming transfer.Amount `json:"incoming"`
}

// accountAnswer returns an account as it is answered.
func accountAnswer(a transfer.Account) accountJSON {
	return accountJSON{ID: a.ID, Available: a.Available, Posted: a.Posted, Incoming: a.Incoming}
}

// transferJSON is a transfer in an answer.
type transferJSON struct {
	// ID is the Idempotency-Key with which the transfer was requested.
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Legs      []legJSON `json:"legs"`
	CreatedAt time.Time `json:"createdAt"`
	// NotBefore is when the worker may begin with a scheduled transfer.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// ExpiresAt is when a hold is given back unless it is posted or voided before.
	ExpiresAt time.Time    `json:"expiresAt,omitzero"`
	Failure   *failureJSON `json:"failure,omitempty"`
	// Refunds is the ID of the transfer of which this one is a refund.
	Refunds string `json:"refunds,omitempty"`
	// Posted is how much of a hold has moved, all of it or a part.
	// The legs are what was held.
	Posted *transfer.Amount `json:"posted,omitempty"`
	// Refunded is how much of this transfer was paid back by now.
	// It is left out of the answer to a request that is repeated, because it changes.
	Refunded *transfer.Amount `json:"refunded,omitempty"`
}

// legJSON is one movement.
// A negative amount takes from the account, and a positive one gives to it.
type legJSON struct {
	Account string          `json:"account"`
	Amount  transfer.Amount `json:"amount"`
}

// failureJSON says why a transfer failed.
type failureJSON struct {
	Code    string `json:"code"`
	Account string `json:"account,omitempty"`
	Message string `json:"message"`
}

// stateOf returns the state of a transfer in an answer.
func stateOf(rec transfer.Record) string {
	switch rec.State {
	case transfer.StateInitiated:
		return stateScheduled
	case transfer.StatePreparing:
		if rec.Hold {
			return stateHeld
		}
	case transfer.StateCommitted, transfer.StateSuccess:
		return stateMoved
	case transfer.StateRollback, transfer.StateFail:
		return stateFailed
	}
	return statePending
}

// transferAnswer returns a transfer as the request for it is answered, each time it is
// repeated.
func (h *handler) transferAnswer(rec transfer.Record) transferJSON {
	answer := transferJSON{
		ID: h.keyOf(rec.ID), State: stateOf(rec), Legs: make([]legJSON, len(rec.Legs)), CreatedAt: rec.CreatedAt,
		NotBefore: rec.NotBefore, ExpiresAt: rec.ExpiresAt, Posted: rec.Posted,
	}
	for i, leg := range rec.Legs {
		answer.Legs[i] = legJSON{leg.Account, leg.Amount}
	}
	if rec.Reverses != "" {
		answer.Refunds = h.keyOf(rec.Reverses)
	}
	if rec.Failure != nil {
		kind := kindOfFailure(rec.Failure.Code)
		answer.Failure = &failureJSON{rec.Failure.Code, rec.Failure.Account, kind.says(rec.Failure.Message)}
		if rec.Reverses != "" && rec.Failure.Account == rec.Reverses { // too little was left of the original
			answer.Failure.Account = ""
		}
	}
	return answer
}

// transferNow returns a transfer as it is now.
func (h *handler) transferNow(rec transfer.Record) transferJSON {
	answer := h.transferAnswer(rec)
	if !rec.Reversed.IsZero() {
		answer.Refunded = &rec.Reversed
	}
	return answer
}

// location returns the path of a transfer.
func (h *handler) location(rec transfer.Record) string {
	return "/transfers/" + url.PathEscape(h.keyOf(rec.ID))
}

// answer writes an answer with a body of JSON.
func (h *handler) answer(w http.ResponseWriter, status int, body any) {
	h.answerAs(w, "application/json", status, body)
}

func (h *handler) answerAs(w http.ResponseWriter, mediaType string, status int, body any) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.log.Debug("the client is gone", "error", err)
	}
}
