package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/mongotransfer/transfer"
)

// retryAfter is how many seconds a client should wait before it repeats a request.
const retryAfter = "1"

// advice ends the message of every answer that leaves the outcome open.
const advice = "; ask again: with the same Idempotency-Key nothing moves twice"

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
	ID        string         `json:"id"`
	State     transfer.State `json:"state"`
	Legs      []legJSON      `json:"legs"`
	CreatedAt time.Time      `json:"createdAt"`
	Failure   *failureJSON   `json:"failure,omitempty"`
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

// transferAnswer returns a transfer as it is answered.
func transferAnswer(rec transfer.Record) transferJSON {
	answer := transferJSON{ID: rec.ID, State: rec.State, Legs: make([]legJSON, len(rec.Legs)), CreatedAt: rec.CreatedAt}
	for i, leg := range rec.Legs {
		answer.Legs[i] = legJSON{leg.Account, leg.Amount}
	}
	if rec.Failure != nil {
		answer.Failure = &failureJSON{rec.Failure.Code, rec.Failure.Account, rec.Failure.Message}
	}
	return answer
}

// errorJSON is the body of every answer that is not a success.
type errorJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Transfer is set if the transfer is stored.
	// It was refused or cancelled, and nothing moved.
	Transfer *transferJSON `json:"transfer,omitempty"`
}

// errStarting is the answer of a process that is not ready yet.
var errStarting = &httpError{http.StatusServiceUnavailable, "starting", errors.New("the service is starting")}

// httpError is an error with the status and the code of its answer.
type httpError struct {
	status int
	code   string
	cause  error
}

// Error returns the text of the cause.
func (e *httpError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *httpError) Unwrap() error { return e.cause }

// badRequest returns an error that is answered with 400.
func badRequest(cause error) error {
	return &httpError{http.StatusBadRequest, "invalidRequest", cause}
}

// statusOf returns the answer for an error of the library.
// The second result is false for an error that no client can do anything about.
func statusOf(err error) (*httpError, bool) {
	var known *httpError
	if errors.As(err, &known) {
		return known, true
	}
	for _, row := range []httpError{
		// This comes first, because it wraps its cause, which may be one of the others.
		{http.StatusServiceUnavailable, "inDoubt", transfer.ErrInDoubt},
		{http.StatusServiceUnavailable, "closing", transfer.ErrClosed},
		{http.StatusBadRequest, "invalidRequest", transfer.ErrInvalidRequest},
		{http.StatusNotFound, "accountNotFound", transfer.ErrAccountNotFound},
		{http.StatusNotFound, "transferNotFound", transfer.ErrTransferNotFound},
		{http.StatusConflict, "idConflict", transfer.ErrIDConflict},
		{http.StatusConflict, "accountExists", transfer.ErrAccountExists},
		{http.StatusConflict, "alreadyCommitted", transfer.ErrAlreadyCommitted},
		{http.StatusConflict, "notHeld", transfer.ErrNotHeld},
	} {
		if errors.Is(err, row.cause) {
			return &httpError{row.status, row.code, err}, true
		}
	}
	return nil, false
}

// refuse answers for a transfer that did not succeed.
// If it is stored as failed, the answer is 422 with its record, and is the same for every
// repeated request.
// All other errors are answered like any error.
func (h *handler) refuse(w http.ResponseWriter, rec transfer.Record, err error) {
	if rec.Failure == nil || transfer.OutcomeOf(err) != transfer.Failed {
		h.fail(w, err)
		return
	}
	stored := transferAnswer(rec)
	h.answer(w, http.StatusUnprocessableEntity, errorJSON{rec.Failure.Code, rec.Failure.Message, &stored})
}

// fail answers with an error.
func (h *handler) fail(w http.ResponseWriter, err error) {
	known, ok := statusOf(err)
	if !ok {
		h.log.Error("a request failed", "error", err)
		known = &httpError{http.StatusServiceUnavailable, "unavailable", errors.New("the service can't answer at the moment")}
	}
	text := known.Error()
	if known.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
		text += advice
	}
	h.answer(w, known.status, errorJSON{Code: known.code, Message: text})
}

// answer writes an answer with a body of JSON.
func (h *handler) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.log.Debug("the client is gone", "error", err)
	}
}
