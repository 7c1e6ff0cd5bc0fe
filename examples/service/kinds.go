package main

import (
	"net/http"

	"github.com/mongotransfer/transfer"
)

// next is what a client does about a problem.
type next string

const (
	// repeatRequest is for what may be different in a moment.
	// It goes with 503, which programs such as curl --retry repeat by themselves; all
	// others go with statuses that they don't repeat.
	repeatRequest next = "repeat"
	newKey        next = "newKey"
	changeRequest next = "change"
	lookAtIt      next = "look"
)

// explained says it in words.
func (n next) explained() string {
	switch n {
	case repeatRequest:
		return "Send the same request with the same Idempotency-Key again, after the time that Retry-After says. " +
			"However often it is sent, the money moves once."
	case newKey:
		return "Nothing moved, and this key stays with this answer. " +
			"Once the cause is gone, the same request may succeed with a new Idempotency-Key."
	case changeRequest:
		return "The request can't succeed as it is. Nothing moved for it. Change it, and send it with a new Idempotency-Key."
	case lookAtIt:
		return "The request came too late, or to the wrong thing, and has changed nothing. Look at what is there."
	}
	return string(n)
}

// kind is a type of problem.
type kind struct {
	// code is the error's name without Err, or the service's own.
	code string
	// err is the library's error, nil for a problem of the service's own, or one that is
	// only found in a record.
	err    error
	status int
	title  string
	next   next
	// hidden says that the error's text is for the log: it may name hosts, users, rights
	// or validators.
	hidden bool
}

// uri returns the URI of the type.
// RFC 9457 lets it be relative to the request, and then wants the whole path.
func (k kind) uri() string { return problemsPath + k.code }

// says returns the text of an error as far as it is for clients.
func (k kind) says(text string) string {
	if k.hidden {
		return k.title
	}
	return text
}

// unstored returns the kind for an error after which no transfer is stored as failed.
// No key stays with such an answer, so there is no new one to be chosen.
func (k kind) unstored() kind {
	if k.next == newKey {
		k.next = lookAtIt
	}
	return k
}

// refused returns the kind for a transfer that is stored as failed.
//
// The status is 422 for all of them: the request was understood, and can't be carried
// out, and no repetition of it changes that.
// It isn't 409, after which the same request may succeed, and which is for the errors
// that leave the key unused.
// Nor is it 402 where money is lacking: that is reserved (RFC 9110), and says nothing
// that the type doesn't say better.
func (k kind) refused() kind {
	k.status = http.StatusUnprocessableEntity
	if k.next == lookAtIt {
		k.next = newKey
	}
	return k
}

// Kinds that the service finds by itself.
var (
	kindMissingKey     = kind{"missingKey", nil, http.StatusBadRequest, "The Idempotency-Key is missing", changeRequest, false}
	kindMalformedKey   = kind{"malformedKey", nil, http.StatusBadRequest, "The Idempotency-Key can't be read", changeRequest, false}
	kindUnknownClient  = kind{"unknownClient", nil, http.StatusForbidden, "The client is not known", changeRequest, false}
	kindTooLarge       = kind{"tooLarge", nil, http.StatusRequestEntityTooLarge, "The body is too large", changeRequest, false}
	kindStarting       = kind{"starting", nil, http.StatusServiceUnavailable, "The service is starting", repeatRequest, false}
	kindUnavailable    = kind{"unavailable", nil, http.StatusServiceUnavailable, "The service can't answer at the moment", repeatRequest, true}
	kindNoSuchPath     = kind{"noSuchPath", nil, http.StatusNotFound, "There is nothing at this path", changeRequest, false}
	kindWrongMethod    = kind{"wrongMethod", nil, http.StatusMethodNotAllowed, "The path has other methods", changeRequest, false}
	kindInvalidRequest = kind{
		"invalidRequest", transfer.ErrInvalidRequest, http.StatusBadRequest, "The request is malformed", changeRequest, false,
	}
	kindInDoubt = kind{
		"inDoubt", transfer.ErrInDoubt, http.StatusServiceUnavailable, "The outcome is not known yet", repeatRequest, true,
	}
	kindCancelled = kind{
		"cancelled", transfer.ErrCancelled, http.StatusUnprocessableEntity, "The transfer was cancelled", newKey, false,
	}
)

// kinds returns all kinds of problems.
// Each error of the library is here.
func kinds() []kind {
	return []kind{
		// These two come first, because they wrap their causes, which may be among the
		// others.
		kindInDoubt,
		// No problem, and never answered as one: the money has moved.
		{"unsettled", transfer.ErrUnsettled, http.StatusAccepted, "Moved, and not in place everywhere yet", lookAtIt, false},

		// Nothing is stored.
		kindInvalidRequest,
		{"closed", transfer.ErrClosed, http.StatusServiceUnavailable, "The service is closing", repeatRequest, true},
		// These take an operator, and the client learns no more than that it isn't at
		// fault.
		{"unauthorized", transfer.ErrUnauthorized, http.StatusServiceUnavailable, "The service is not set up", repeatRequest, true},
		{"unsupportedDeployment", transfer.ErrUnsupportedDeployment, http.StatusServiceUnavailable,
			"The service is not set up", repeatRequest, true},
		{"auditTooLong", transfer.ErrAuditTooLong, http.StatusServiceUnavailable, "The audit takes too long", repeatRequest, true},
		kindMissingKey, kindMalformedKey, kindUnknownClient, kindTooLarge, kindStarting, kindUnavailable,
		kindNoSuchPath, kindWrongMethod,

		// Too late, or to the wrong thing.
		// Those about reversals are also refusals, where the reversal was stored before.
		{"idConflict", transfer.ErrIDConflict, http.StatusUnprocessableEntity,
			"The Idempotency-Key was used for another request", changeRequest, false},
		{"transferNotFound", transfer.ErrTransferNotFound, http.StatusNotFound, "There is no such transfer", lookAtIt, false},
		{"alreadyCommitted", transfer.ErrAlreadyCommitted, http.StatusConflict, "The money has moved", lookAtIt, false},
		{"notHeld", transfer.ErrNotHeld, http.StatusConflict, "The transfer is not held", lookAtIt, false},
		{"alreadyReversed", transfer.ErrAlreadyReversed, http.StatusConflict, "Everything was refunded before", lookAtIt, false},
		{"reversalExceeds", transfer.ErrReversalExceeds, http.StatusConflict, "Less is left to be refunded", changeRequest, false},
		{"notReversible", transfer.ErrNotReversible, http.StatusConflict, "There is nothing to refund", lookAtIt, false},
		{"accountExists", transfer.ErrAccountExists, http.StatusConflict, "The account exists", lookAtIt, false},
		{"accountNotEmpty", transfer.ErrAccountNotEmpty, http.StatusConflict, "There is money in the account, or a debt", lookAtIt, false},
		{"historyGone", transfer.ErrHistoryGone, http.StatusGone, "The history is not kept for so long", changeRequest, false},
		{"notRepairable", transfer.ErrNotRepairable, http.StatusConflict, "It is not as it was audited", lookAtIt, false},

		// Refusals, in the order in which the library has them.
		// As an answer about an account itself they are conflicts.
		{"accountNotFound", transfer.ErrAccountNotFound, http.StatusNotFound, "There is no such account", newKey, false},
		{"accountClosed", transfer.ErrAccountClosed, http.StatusConflict, "The account is closed", newKey, false},
		{"accountFrozen", transfer.ErrAccountFrozen, http.StatusConflict, "The account is frozen", newKey, false},
		{"currencyMismatch", transfer.ErrCurrencyMismatch, http.StatusConflict, "The account has another currency", changeRequest, false},
		{"amountKind", transfer.ErrAmountKind, http.StatusConflict, "The account has another kind of amount", changeRequest, false},
		{"accountBusy", transfer.ErrAccountBusy, http.StatusConflict, "Too many transfers are under way on the account", newKey, false},
		{"insufficientFunds", transfer.ErrInsufficientFunds, http.StatusConflict, "There is not enough money", newKey, false},
		{"overflow", transfer.ErrOverflow, http.StatusConflict, "The account can't hold so much", newKey, false},
		{"requirementFailed", transfer.ErrRequirementFailed, http.StatusConflict, "A document is not as required", newKey, false},
		{"unwritable", transfer.ErrUnwritable, http.StatusConflict, "The account can't be written", newKey, true},

		// Rolled back. The record tells these apart.
		kindCancelled,
		{"voided", nil, http.StatusUnprocessableEntity, "The hold was voided", newKey, false},
		{"stalled", nil, http.StatusUnprocessableEntity, "The transfer came to a halt, and was rolled back", newKey, false},
		{"repaired", nil, http.StatusUnprocessableEntity, "The transfer was lost, and repaired by hand", newKey, true},
		{"expired", transfer.ErrExpired, http.StatusUnprocessableEntity, "The hold has expired", newKey, false},
	}
}

// kindOfFailure returns the kind for the code of a stored failure.
// One that a later version has stored counts as cancelled, as it does in the library.
func kindOfFailure(code string) kind {
	for _, k := range kinds() {
		if k.code == code {
			return k
		}
	}
	return kindCancelled
}
