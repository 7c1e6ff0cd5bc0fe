package transfer

import (
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// Errors that mean: this call has stored nothing. Other calls keep their outcomes:
// whoever asks again after a success, with a context that has ended, or of a closed
// coordinator, is told one of these, and the money has moved all the same. The context's
// own error, and that of a server that can't be reached for 30 s, belong here, too:
// [OutcomeOf] knows them.
var (
	// ErrInvalidRequest means that the request is malformed; the text says how.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrUnsupportedDeployment means that the server, or a collection on it, is not fit,
	// or is used by others under another configuration: a standalone server, one older
	// than MongoDB 5.0, a collection sharded by something else than _id, other field
	// names than the deployment's. The text says what to do; [Coordinator.Setup] lists it
	// all.
	ErrUnsupportedDeployment = collections.ErrUnsupported
	// ErrUnauthorized means that the server refuses the client's user: the right for an
	// action is missing, or the password is wrong. Where a transfer is stored by then,
	// the error wraps ErrInDoubt as well. See [UnauthorizedError].
	ErrUnauthorized = errors.New("unauthorized")
	// ErrClosed means that the Coordinator was closed. What was asked of it before keeps
	// its outcome, and may be finished by Close.
	ErrClosed = errors.New("the coordinator is closed")
)

// Errors that mean: the transfer was refused. It is stored in StateFail, nothing moved,
// and the ID stays failed. Each comes in a [RefusedError], which names the account. Where
// several apply, the first in this order is told. In StateRollback, with a record whose
// Stuck is not nil, it has failed for good as well, and an account that can't be written
// keeps what it has reserved until that is repaired.
var (
	// ErrAccountNotFound means that there is no such account.
	ErrAccountNotFound = errors.New("account not found")
	// ErrAccountClosed means that the account is closed.
	ErrAccountClosed = errors.New("account is closed")
	// ErrCurrencyMismatch means that request and account name different currencies, or
	// only one of them names any. The text names both.
	ErrCurrencyMismatch = errors.New("currency differs from the account's")
	// ErrAmountKind means that the balance is not an exact number of the amount's kind: units want an int32 or int64,
	// decimals a Decimal128. A double is never taken.
	ErrAmountKind = errors.New("the balance is not of the amount's kind")
	// ErrAccountBusy means that too many transfers are in flight on the account: see [WithMarkerLimit]. From
	// CloseAccount it means that one is.
	ErrAccountBusy = errors.New("account is busy")
	// ErrInsufficientFunds means that the debit would leave less than the account's floor.
	ErrInsufficientFunds = errors.New("insufficient funds")
	// ErrOverflow means that the balance would leave the range of what is stored exactly.
	ErrOverflow = errors.New("the balance would exceed its limit")
	// ErrRequirementFailed means that the document of an effect is missing, is not as the effect requires, or is reserved for another
	// transfer. It comes with a [RequirementError].
	ErrRequirementFailed = errors.New("the document is not as required")
	// ErrUnwritable means that the server refuses the write: a validator, a type, a
	// unique index of the user's. The text tells the server's reason.
	ErrUnwritable = errors.New("the server refuses to write to the account")
)

// Errors that mean: the transfer was rolled back for another reason. It is stored in StateFail and nothing moved.
var (
	// ErrCancelled means that the transfer was cancelled, that the hold was voided, or that the transfer had stalled and was rolled back by
	// [RollBack]. Record.Failure.Code tells which.
	ErrCancelled = errors.New("cancelled")
	// ErrExpired means that a hold has run out.
	ErrExpired = errors.New("hold has expired")
)

// Errors that mean: where the money is can't be told now.
var (
	// ErrInDoubt means that the outcome is not known: the context ended after something
	// was sent, or a server is away. It wraps the cause. Ask again with the same ID: the
	// money can't move twice. What is known to be committed is told as ErrUnsettled
	// instead.
	ErrInDoubt = errors.New("outcome in doubt (ask again with the same ID)")
)

// ErrUnsettled means that the transfer is committed for good, and that not all of it is
// in place: an account is gone, or the server refuses to write to it. The record comes
// with the error, in StateCommitted, and Record.Stuck says why. It goes on once that is
// repaired. Where Stuck is nil nothing is in the way: the caller's context has ended, or
// the Coordinator was closed, after the commit and before everything was in place. The
// error wraps that cause, and the rest follows.
var ErrUnsettled = errors.New("committed, and not settled everywhere yet")

// Errors of verbs that came too late or to the wrong thing; they leave everything as it was.
var (
	// ErrIDConflict means that the ID was used before, with another payload. It comes
	// with a [ConflictError].
	ErrIDConflict = errors.New("the ID was used with another payload (see its record)")
	// ErrAlreadyCommitted means that the transfer can't be cancelled any more.
	ErrAlreadyCommitted = errors.New("already committed")
	// ErrNotHeld means that the transfer is no hold, or that not everything is prepared for it yet.
	ErrNotHeld = errors.New("not held")
	// ErrAlreadyReversed means that another transfer has reversed this one.
	ErrAlreadyReversed = errors.New("already reversed")
	// ErrNotReversible means that there is nothing to reverse: the transfer is not in StateSuccess.
	ErrNotReversible = errors.New("not reversible")
	// ErrTransferNotFound means that there is no transfer with this ID.
	ErrTransferNotFound = errors.New("transfer not found")
	// ErrAccountExists means that there is an account with this ID.
	ErrAccountExists = errors.New("account exists")
	// ErrHistoryGone means that a statement or a balance was asked for from before what is kept.
	ErrHistoryGone = errors.New("history is gone (ask for later times)")
	// ErrAccountNotEmpty means that an account can't be closed because there is money in it, or a debt.
	ErrAccountNotEmpty = errors.New("account is not empty")
)

// RefusedError says which account refused a transfer, or which document (Ledger is the name under which its collection was registered then,
// and Account its ID), and why. errors.Is finds Err through it.
type RefusedError struct {
	TransferID      string
	Ledger, Account string
	Err             error
	// Detail says more than Err where there is more to say: that there is no balance
	// field, say. Others is how many other accounts and documents of the transfer would
	// have been refused as well; Detail names some of them.
	Detail string
	Others int
	// Balance is the balance that the refusal rests on. It is nil where none was seen, and in every later answer about
	// the same transfer.
	Balance *Amount

	why error // Err, and what is known of it
}

// Error names the transfer, the account and the reason. The balance is for programs.
func (e *RefusedError) Error() string {
	account := "account " + words.Quote(e.Account)
	if e.Ledger != "" {
		account = words.Quote(e.Account) + " of " + words.Quote(e.Ledger)
	}
	text := fmt.Sprintf("transfer %s refused: %s: %v", words.Quote(e.TransferID), account, e.Unwrap())
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text + " (nothing moved; another try needs a new ID)"
}

// Unwrap returns the reason: Err, or what wraps it, such as a [RequirementError].
func (e *RefusedError) Unwrap() error {
	if e.why != nil {
		return e.why
	}
	return e.Err
}

// reasonError returns the error for a reason, nil for one that no participant is to blame for.
func reasonError(reason protocol.Reason) error {
	switch reason {
	case protocol.NotFound:
		return ErrAccountNotFound
	case protocol.Closed:
		return ErrAccountClosed
	case protocol.CurrencyMismatch:
		return ErrCurrencyMismatch
	case protocol.AmountKind:
		return ErrAmountKind
	case protocol.Busy:
		return ErrAccountBusy
	case protocol.InsufficientFunds:
		return ErrInsufficientFunds
	case protocol.Overflow:
		return ErrOverflow
	case protocol.RequirementFailed:
		return ErrRequirementFailed
	case protocol.Unwritable:
		return ErrUnwritable
	case protocol.Cancelled, protocol.Stalled, protocol.Voided, protocol.Expired:
	}
	return nil
}

// failureError returns the error that a transfer failed with, from what is stored.
func failureError(rec Record) error {
	if rec.Failure == nil {
		return aboutTransfer(rec.ID, fmt.Errorf("%w: its document does not say why", ErrCancelled))
	}
	for reason := protocol.NotFound; reason <= protocol.Unwritable; reason++ {
		if rec.Failure.Code == reason.String() {
			return &RefusedError{
				TransferID: rec.ID, Ledger: rec.Failure.Ledger, Account: rec.Failure.Account, Err: reasonError(reason),
				why:    explainedBefore(rec, reason),
				Detail: rec.Failure.Detail, Others: rec.Failure.Others,
			}
		}
	}
	if rec.Failure.Code == protocol.Expired.String() {
		return aboutTransfer(rec.ID, ErrExpired)
	}
	return aboutTransfer(rec.ID, cancelled(*rec.Failure))
}

// cancelled returns the error of a transfer that was rolled back though nobody has refused it.
func cancelled(f Failure) error {
	why := f.Message
	switch f.Code {
	case document.RepairedCode: // whose story has amounts
		why = "its document was lost, and a marker of it was removed by hand"
	case protocol.Cancelled.String(): // in somebody's words
		if why == "" {
			return ErrCancelled
		}
		why = words.Quote(why)
	}
	return fmt.Errorf("%w: %s", ErrCancelled, why)
}

func inDoubt(id string, cause error) error {
	cause = named(cause)
	if cause == nil {
		return aboutTransfer(id, ErrInDoubt)
	}
	return aboutTransfer(id, withCause(ErrInDoubt, withoutTransfer(id, cause)))
}

// unsettled is the error of a committed transfer of which not everything is in place.
func unsettled(rec Record, cause error) error {
	return aboutTransfer(rec.ID, withCause(ErrUnsettled, withoutTransfer(rec.ID, cause)))
}

// withCause adds a cause to an error, unless there is none or it is known already. A cause
// that wraps the error says more: it stands alone.
func withCause(err, cause error) error {
	cause = named(cause)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return &causedError{err, cause}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidRequest, fmt.Errorf(format, args...))
}
