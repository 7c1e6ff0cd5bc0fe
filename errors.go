package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Errors that mean: this call has stored nothing.
// Other calls keep their outcomes: a repeated call after a success, with a context that
// has ended or on a closed Coordinator, returns one of these, although the money has
// moved.
// The context's own error, and that of a server that can't be reached for 30 s, belong
// here as well: [OutcomeOf] knows them.
var (
	// ErrInvalidRequest means that the request is malformed; the text says how.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrUnsupportedDeployment means that the server, or a collection on it, can't be
	// used, or is used by others under another configuration.
	// It may be a standalone server, one older than MongoDB 5.0, a collection sharded by
	// something else than _id, or other field names than the deployment's.
	// The text says what to do, and [Coordinator.Setup] lists all causes.
	ErrUnsupportedDeployment = collections.ErrUnsupported
	// ErrUnauthorized means that the server refuses the client's user: the right for an
	// action is missing, or the password is wrong.
	// Where a transfer is stored by then, the error wraps ErrInDoubt as well, or
	// ErrUnsettled if it is committed.
	// See [UnauthorizedError].
	ErrUnauthorized = errors.New("unauthorized")
	// ErrClosed means that the Coordinator was closed.
	// Earlier calls keep their outcomes, and Close may finish them.
	ErrClosed = engine.ErrClosed
)

// Errors that mean: the transfer was refused.
// It is stored in StateFail, nothing moved, and the ID stays failed.
// Each comes in a [RefusedError], which names the account.
// Where several apply, the first in this order is returned.
//
// With a record in StateRollback, whose Stuck is not nil, the transfer has failed for
// good as well, and an account that can't be written keeps what it has reserved until
// that is repaired.
var (
	// ErrAccountNotFound means that there is no such account.
	ErrAccountNotFound = errors.New("account not found")
	// ErrAccountClosed means that the account is closed.
	ErrAccountClosed = errors.New("account is closed")
	// ErrAccountFrozen means that the account is frozen: see [Coordinator.UpdateAccount].
	ErrAccountFrozen = errors.New("account is frozen")
	// ErrCurrencyMismatch means that the leg, or the request, and the account name
	// different currencies, or only one of them names any.
	// The text names both.
	ErrCurrencyMismatch = errors.New("currency differs from the account's")
	// ErrAmountKind means that the balance is not an exact number of the amount's kind:
	// units need an int32 or int64, decimals a Decimal128.
	// A double is never accepted.
	ErrAmountKind = errors.New("the balance is not of the amount's kind")
	// ErrAccountBusy means that too many transfers are in flight on the account: see
	// [WithMarkerLimit].
	// From CloseAccount it means that one is.
	ErrAccountBusy = errors.New("account is busy")
	// ErrInsufficientFunds means that the debit would leave less than the account's
	// floor.
	ErrInsufficientFunds = errors.New("insufficient funds")
	// ErrOverflow means that a credit would take the balance beyond its limit, or that a
	// sum of amounts can't be stored exactly.
	ErrOverflow = errors.New("the balance would exceed its limit")
	// ErrRequirementFailed means that the document of an effect is missing, is not as the
	// effect requires, or is reserved for another transfer.
	// It comes with a [RequirementError].
	ErrRequirementFailed = errors.New("the document is not as required")
	// ErrUnwritable means that the server refuses the write: because of a validator, a
	// type, or an index of the user's that is unique or can't have the document.
	// The text has the server's reason.
	// OpenAccount, UpdateAccount, CloseAccount and ReopenAccount return it as well.
	ErrUnwritable = errors.New("the server refuses to write to the account")
)

// Errors that mean: the transfer was rolled back for another reason.
// It is stored in StateFail and nothing moved.
var (
	// ErrCancelled means that the transfer was cancelled, that the hold was voided, or
	// that the transfer had stalled and was rolled back by [RollBack].
	// Record.Failure.Code says which.
	ErrCancelled = errors.New("cancelled")
	// ErrExpired means that a hold has run out.
	ErrExpired = errors.New("hold has expired")
)

// Errors that mean: it is not known now where the money is.
var (
	// ErrInDoubt means that the outcome is not known: the context ended after something
	// was sent, or a server is away.
	// It wraps the cause.
	// Ask again with the same ID: the money can't move twice.
	// For a transfer that is known to be committed the error is ErrUnsettled instead.
	ErrInDoubt = errors.New("outcome in doubt (ask again with the same ID)")
)

// ErrUnsettled means that the transfer is committed for good, and that not all of it is
// in place: an account is gone, or the server refuses to write to it.
// The record comes with the error, in StateCommitted, and Record.Stuck says why.
// The transfer goes on once that is repaired.
// An account that is gone must come back with its marker: docs/operations.md has the
// runbook.
// If it is opened anew instead, the transfer ends without paying there.
//
// Where Stuck is nil the caller's context has ended, or the Coordinator was closed, after
// the commit and before everything was in place, or the right to update the transfers is
// missing.
// The error wraps that cause, and the rest follows, once the right is granted.
// Until the commit is recorded others may see the transfer in StatePreparing, and
// statements may lack it: for some milliseconds, or until recovery steps in where the
// process has ended or was closed meanwhile.
var ErrUnsettled = errors.New("committed, and not settled everywhere yet")

// Errors of calls that came too late or to the wrong thing; they leave everything as it
// was.
var (
	// ErrIDConflict means that the ID was used before, with another payload.
	// It comes with a [ConflictError].
	ErrIDConflict = errors.New("the ID was used with another payload (see its record)")
	// ErrAlreadyCommitted means that the transfer can't be cancelled any more, or that a
	// hold was posted.
	ErrAlreadyCommitted = errors.New("already committed")
	// ErrNotHeld means that the transfer is no hold, or that not everything is prepared
	// for it yet, or, for Extend, that it was rolled back.
	ErrNotHeld = errors.New("not held")
	// ErrAlreadyReversed means that nothing is left of a transfer to be reversed.
	ErrAlreadyReversed = errors.New("already reversed")
	// ErrReversalExceeds means that less is left of a transfer than a reversal was asked
	// to take back.
	ErrReversalExceeds = errors.New("more than what is left to be reversed")
	// ErrNotReversible means that a transfer can't be reversed: it is not in
	// StateSuccess, it has moved no money, or it has a marker of a transfer that is not
	// under way.
	ErrNotReversible = errors.New("not reversible")
	// ErrTransferNotFound means that there is no transfer with this ID.
	ErrTransferNotFound = errors.New("transfer not found")
	// ErrAccountExists means that there is an account with this ID.
	ErrAccountExists = errors.New("account exists")
	// ErrHistoryGone means that a statement or a balance was asked for from before what
	// is kept.
	ErrHistoryGone = errors.New("history is gone (ask for later times)")
	// ErrAccountNotEmpty means that an account can't be closed because there is money in
	// it, or a debt.
	ErrAccountNotEmpty = errors.New("account is not empty")
)

// UnauthorizedError says which right is missing.
// errors.Is finds ErrUnauthorized through it, and the driver's own error.
type UnauthorizedError struct {
	// Action is the missing right as the server's roles name it, such as "update".
	// Where a command needs two, the server doesn't say which of them is missing, and
	// Action has both: "find, update".
	// It is "" where the server refuses the user or the password.
	Action string
	// Namespace is the database and collection for which the right is missing, such as
	// "bank.accounts".
	// For a right on a whole database it is the database's name alone.
	Namespace string

	cause error
}

// Error names the right and the collection.
func (e *UnauthorizedError) Error() string {
	if e.Action == "" {
		return "the server refuses the user or the password"
	}
	advice := "grant it, as docs/roles shows"
	if e.wouldSetUp() {
		advice = "Setup creates what is missing there: call it once, as a user with the role of docs/roles/migration.json"
	}
	return fmt.Sprintf("the user has no right to %s on %s: %s", e.Action, e.Namespace, advice)
}

// wouldSetUp reports whether the right is one to create what Setup creates: a collection,
// an index, or what lies beside a collection, such as in bank.accounts.transfer.
func (e *UnauthorizedError) wouldSetUp() bool {
	_, collection, _ := strings.Cut(e.Namespace, ".")
	besides := strings.HasSuffix(collection, ".transfer") || strings.HasSuffix(collection, ".retention")
	return strings.HasPrefix(e.Action, "create") || besides && strings.Contains(e.Action, "insert")
}

// Unwrap returns ErrUnauthorized, and the error that says so.
func (e *UnauthorizedError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrUnauthorized}
	}
	return []error{ErrUnauthorized, e.cause}
}

// denied reports whether an error says that a right is missing.
// The call is not tried again by itself: a caller that learns it at once can have the
// right granted.
func denied(err error) bool {
	return errors.Is(err, ErrUnauthorized) || wire.Denied(err) != nil
}

// asUnauthorized gives an error that says that a right is missing its public name.
func asUnauthorized(err error) error {
	missing := wire.Denied(err)
	switch {
	case missing == nil || errors.Is(err, ErrUnauthorized):
		return err
	case missing.Code == wire.CodeNoUser:
		return &UnauthorizedError{cause: err}
	}
	return &UnauthorizedError{Action: missing.Action, Namespace: missing.Namespace, cause: err}
}

// ConflictError says how the payload of an earlier request with the same ID differs from
// the one of this request.
// errors.Is finds ErrIDConflict through it.
// The record that comes with it is the earlier one's.
type ConflictError struct {
	// Differs names the parts that differ: "legs" (accounts or amounts), "atMost",
	// "currency", "effects", "hold" (one is a hold and the other is not), "reverses"
	// (another original, or one is no reversal), "part" (one takes back all that is left,
	// and the other does not), "posted", for a hold that was posted with another amount,
	// or "collections", for one of a process in which a ledger or documents are another
	// collection.
	// It is empty where this version doesn't know, since a later one has stored the
	// transfer.
	Differs []string

	id          string
	oneReverses bool // and the other is no reversal
}

// Error names the transfer and what differs, without values.
func (e *ConflictError) Error() string {
	text := fmt.Sprintf("transfer %s: %v", words.Quote(e.id), ErrIDConflict)
	before := ": "
	for _, part := range e.Differs {
		text += before + e.difference(part)
		before = ", "
	}
	return text
}

// difference says in words what a part in Differs is.
func (e *ConflictError) difference(part string) string {
	switch part {
	case "legs":
		return "other accounts or amounts"
	case "atMost":
		return "another AtMost"
	case "currency":
		return "another currency"
	case "hold":
		return "one is a hold and the other is not"
	case "reverses":
		if e.oneReverses {
			return "one is a reversal and the other is not"
		}
		return "another original"
	case "part":
		return "one takes back all that is left and the other does not"
	case "posted":
		return "it was posted with another amount"
	case "collections":
		return "a name stands for another collection here"
	}
	return "other " + part
}

// Unwrap returns ErrIDConflict.
func (e *ConflictError) Unwrap() error { return ErrIDConflict }

// conflict compares a stored transfer with the one that is requested under its ID.
// Only parts of the digest can differ.
func conflict(stored, planned document.Transfer) error {
	e := &ConflictError{id: stored.ID, oneReverses: (stored.Reverses == "") != (planned.Reverses == "")}
	for _, part := range []struct {
		name  string
		other bool
	}{
		{"legs", !bytes.Equal(legsOf(stored, planned), legsOf(planned, stored))},
		{"atMost", !equalParts(stored.AtMost, planned.AtMost)},
		{"currency", otherCurrencies(stored, planned)},
		{"effects", !bytes.Equal(effectsPayload(nil, stored.Effects), effectsPayload(nil, planned.Effects))},
		{"hold", stored.Hold != planned.Hold},
		{"reverses", stored.Reverses != planned.Reverses},
		{"part", stored.Part != planned.Part && !e.oneReverses},
	} {
		if part.other {
			e.Differs = append(e.Differs, part.name)
		}
	}
	return e
}

// legsOf returns the legs as the digest counts them, without the currencies.
// Where one of the two has AtMost, the amounts of the legs don't count: it is the limit
// that differs.
func legsOf(t, other document.Transfer) []byte {
	t = inCurrency(t, "")
	if t.AtMost == nil {
		t.AtMost = other.AtMost
	}
	return plainPayload(counted(t), nil)
}

// postedOtherwise is the error of a hold that was posted with another amount.
func postedOtherwise(id string) error {
	return &ConflictError{id: id, Differs: []string{"posted"}}
}

// aboutError names the subject of an error.
// No matter how often the error is passed on, its text names the subject once: see about.
type aboutError struct {
	subject string
	err     error
}

// Error names the subject first.
func (e *aboutError) Error() string { return e.subject + ": " + e.err.Error() }

// Unwrap returns the error itself.
func (e *aboutError) Unwrap() error { return e.err }

// about names the subject of an error, unless the error begins with it.
func about(subject string, err error) error {
	return &aboutError{subject, without(subject, err)}
}

// without returns an error that names the subject neither at its beginning nor at that of
// its cause.
func without(subject string, err error) error {
	switch e := any(err).(type) { // not what it wraps: that has a text around it
	case *aboutError:
		if e.subject == subject {
			return e.err
		}
	case *causedError:
		return &causedError{without(subject, e.err), without(subject, e.cause)}
	}
	return err
}

// causedError is an error with its cause.
type causedError struct{ err, cause error }

// Error returns both texts.
func (e *causedError) Error() string { return e.err.Error() + ": " + e.cause.Error() }

// Unwrap returns both.
func (e *causedError) Unwrap() []error { return []error{e.err, e.cause} }

// aboutTransfer says that an error is about a transfer.
func aboutTransfer(id string, err error) error { return about("transfer "+words.Quote(id), err) }

// aboutAccount says that an error is about an account.
func aboutAccount(id string, err error) error { return about("account "+words.Quote(id), err) }

// withoutTransfer is without for a transfer.
func withoutTransfer(id string, err error) error { return without("transfer "+words.Quote(id), err) }

// withCause adds a cause to an error, unless it is nil or the error wraps it already.
// A cause that wraps the error says more: it stands alone.
func withCause(err, cause error) error {
	cause = asUnauthorized(cause)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return &causedError{err, cause}
}

// invalid returns ErrInvalidRequest with a text.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidRequest, fmt.Errorf(format, args...))
}
