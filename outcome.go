package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer/internal/document"
)

// Outcome says where a call leaves the money.
type Outcome uint8

const (
	// Moved means that what the call asked for is done for good.
	// The money has moved or, for Hold, Extend, Void and Cancel, is held or was
	// given back.
	// After Submit it is stored, and nothing has moved yet: [Coordinator.Wait] has the
	// outcome.
	// After ErrUnsettled it is committed, and not all of it is in place yet.
	Moved Outcome = iota + 1
	// NothingStored means that this call has stored nothing.
	// It says nothing about other calls: an earlier one with the same ID keeps its
	// outcome, and so does one that is still under way elsewhere.
	// Ask again with the same ID, or call [Coordinator.Get], before you conclude that
	// nothing moved.
	NothingStored
	// Failed means that the transfer is stored, has failed for good, and moves nothing.
	// The ID stays failed.
	Failed
	// InDoubt means that the outcome is not known.
	// Ask again with the same ID: the money can't move twice.
	InDoubt
	// Unchanged means that the call came too late or to the wrong thing, and left
	// everything as it was.
	Unchanged
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Moved:
		return "Moved"
	case NothingStored:
		return "NothingStored"
	case Failed:
		return "Failed"
	case InDoubt:
		return "InDoubt"
	case Unchanged:
		return "Unchanged"
	}
	return "unknown"
}

// OutcomeOf returns the outcome of a call by its error, nil for one that has succeeded.
// It knows every error that the calls of this package about one transfer or one account
// return.
// Where two outcomes apply it is InDoubt, if that is one of them.
// It is InDoubt for an error that it doesn't know as well, since that is safe: a repeated
// call with the same ID can't move the money twice.
//
// A call that only reads (Get, List, GetAccount, Statement …) stores nothing, whatever
// its error is.
// Its outcome is NothingStored where there was no answer, and Unchanged where it asked
// for what isn't there.
// It is InDoubt only for a document that can't be read.
// The errors of Run, Recover, Setup and Close are not about one transfer.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Moved
	}
	var refused *RefusedError
	switch {
	case errors.Is(err, ErrInDoubt):
		return InDoubt
	case errors.Is(err, ErrUnsettled):
		return Moved
	case errors.As(err, &refused), errors.Is(err, ErrCancelled), errors.Is(err, ErrExpired):
		return Failed
	case isOneOf(err, unchanging()):
		return Unchanged
	case errors.As(err, new(unstored)), isOneOf(err, beforehand()):
		return NothingStored
	}
	return InDoubt
}

// unchanging returns the errors of what came too late, or to the wrong thing.
// Those of accounts are among them where no [RefusedError] names the transfer: GetAccount
// and CloseAccount return them as well.
func unchanging() []error {
	return []error{
		ErrIDConflict, ErrAlreadyCommitted, ErrNotHeld, ErrAlreadyReversed, ErrReversalExceeds, ErrNotReversible, ErrTransferNotFound,
		ErrAccountExists, ErrAccountNotEmpty, ErrHistoryGone, ErrNotRepairable, ErrAuditTooLong,
		ErrAccountNotFound, ErrAccountClosed, ErrAccountFrozen, ErrCurrencyMismatch, ErrAmountKind, ErrAccountBusy,
		ErrInsufficientFunds, ErrOverflow, ErrRequirementFailed, ErrUnwritable,
	}
}

// beforehand returns the errors that come before anything is sent.
// Once something was sent they are causes of ErrInDoubt.
func beforehand() []error {
	return []error{
		ErrInvalidRequest, ErrUnsupportedDeployment, ErrUnauthorized, ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	}
}

func isOneOf(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// unstored is an error of a call that has certainly sent nothing which could be stored,
// such as that of a server which is away: the error alone doesn't say so.
type unstored struct{ error }

// Unwrap returns the error.
func (e unstored) Unwrap() error { return e.error }

// nothingStored says of an error that the call has stored nothing.
func nothingStored(err error) error {
	if err == nil || OutcomeOf(err) == NothingStored || errors.Is(err, document.ErrUnreadable) {
		return err // what can't be read is there, and what became of it is not known
	}
	return unstored{err}
}

// early answers a call that has stored nothing.
// Where this process works on a transfer of that ID all the same, for another call or in
// the background, the outcome is in doubt:
//
//  1. A sends its claim, and its context ends.
//     The transfer goes on.
//  2. B asks again, with a context that has ended.
//  3. If B learned that nothing was stored, it would ask for the same under another ID,
//     and pay twice.
func (c *Coordinator) early(id string, err error) error {
	if err != nil && c.engine.Sent(id) && OutcomeOf(err) != InDoubt {
		return inDoubt(id, fmt.Errorf("it is under way here for another call; this one: %w", withoutTransfer(id, err)))
	}
	return nothingStored(err)
}

// asKnown answers for a transfer whose end is no longer awaited, by its last seen state.
// A commit can't be taken back: the money has moved, whatever keeps the caller from
// seeing the end.
// A transfer that can't be undone has failed all the same.
// The record is empty where the transfer was not seen.
func asKnown(id string, rec Record, cause error) (Record, error) {
	cause = withCause(obstacle(rec), cause)
	switch {
	case rec.State == StateCommitted:
		return rec, unsettled(rec, cause)
	case rec.State == StateRollback && rec.Stuck != nil:
		return rec, withCause(failureError(rec), cause)
	}
	return rec, inDoubt(id, cause)
}

// asFinal answers with a final record as Transfer does.
func asFinal(rec Record) (Record, error) {
	if rec.State == StateFail {
		return rec, failureError(rec)
	}
	return rec, nil
}

// inDoubt is the error of a transfer whose outcome is not known.
func inDoubt(id string, cause error) error {
	cause = asUnauthorized(cause)
	if cause == nil {
		return aboutTransfer(id, ErrInDoubt)
	}
	return aboutTransfer(id, withCause(ErrInDoubt, withoutTransfer(id, cause)))
}

// unsettled is the error of a committed transfer that is not in place everywhere.
func unsettled(rec Record, cause error) error {
	return aboutTransfer(rec.ID, withCause(ErrUnsettled, withoutTransfer(rec.ID, cause)))
}

// obstacle says what keeps a transfer from being finished, nil if nothing is known.
func obstacle(rec Record) error {
	if rec.Stuck == nil {
		return nil
	}
	return obstacleError(rec.Stuck.Message)
}

// obstacleError is the cause of an answer about a transfer that is stuck.
type obstacleError string

// Error says what is in the way.
func (e obstacleError) Error() string {
	return string(e) + "; the transfer goes on once that is repaired"
}
