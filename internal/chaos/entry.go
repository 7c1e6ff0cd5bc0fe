package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/engine"
)

// verb is what a caller called.
type verb string

const (
	verbTransfer verb = "transfer"
	verbConflict verb = "transfer of something else"
	verbSubmit   verb = "submit"
	verbWait     verb = "wait"
	verbCancel   verb = "cancel"
	verbHold     verb = "hold"
	verbPost     verb = "post"
	verbVoid     verb = "void"
	verbExtend   verb = "extend"
	verbReverse  verb = "reverse"
	verbGet      verb = "get"
	verbClose    verb = "close"
	verbReopen   verb = "reopen"
	verbFreeze   verb = "freeze"
	verbUnfreeze verb = "unfreeze"
	verbRecover  verb = "recover"
)

// stores reports whether the verb stores the transfer whose ID it is called with.
func (v verb) stores() bool {
	return v == verbTransfer || v == verbSubmit || v == verbHold || v == verbReverse
}

// changesAccount reports whether the verb is about an account, and not about a transfer.
func (v verb) changesAccount() bool {
	return v == verbClose || v == verbReopen || v == verbFreeze || v == verbUnfreeze
}

// word is what an answer says about the money.
type word string

const (
	unanswered word = ""
	done       word = "done"            // the record is in the entry's State
	refused    word = "refused"         // the transfer has failed
	inDoubt    word = "in doubt"        // the outcome is not known
	unwritten  word = "nothing written" // this call stored nothing
	// The library rejected the request or the server, or the error means nothing known.
	rejected word = "rejected"
	conflict word = "conflict"
	tooLate  word = "too late" // too late to cancel or to void
	notFound word = "not found"
	keptOpen word = "kept open" // the account is busy or not empty
	notHeld  word = "not held"

	alreadyReversed word = "already reversed"
	reversalExceeds word = "reversal exceeds"
	notReversible   word = "not reversible"
)

// entry is one line of a worker's report: the beginning of a call, its answer, or what
// else has happened.
type entry struct {
	Call  string // the call's name
	Verb  verb
	ID    string         // of the transfer or the account
	Word  word           // empty at the beginning of the call
	State transfer.State // of the record in the answer
	Epoch int64          // of the record in the answer
	Code  string         // of the failure
	Text  string         // of the error
	// ReturnAt says what the call waits for.
	ReturnAt transfer.ReturnAt
	// ExpiresAt is when the hold in the answer to an Extend expires.
	ExpiresAt time.Time
	// Known says that the caller knew before the call that the transfer is stored, or the
	// original of a reversal.
	Known bool
	// Part is how much of a hold the call posts.
	// Zero means all of it.
	Part int64

	// Held says that the caller knew that the transfer is or was held.
	Held bool
	// Succeeded says that the caller knew that the original of a reversal has succeeded.
	Succeeded bool

	Began, Ended time.Time

	Recovered *transfer.RecoveryReport
	// Took is the receipt for an event. Then all else is empty.
	Took *receipt
}

// early reports whether an answer without an error came before its caller wanted it.
func (e entry) early() bool {
	moves := e.Verb == verbTransfer || e.Verb == verbPost || e.Verb == verbReverse
	return e.Text == "" && e.State == transfer.StateCommitted && (e.Verb == verbWait || moves && e.ReturnAt == transfer.AtSuccess)
}

// promised reports whether an answer came as soon as the transfer was committed, and
// another execution had to finish it: the one that answered was dead, or too slow.
func (e entry) promised(t transferDocument) bool {
	return e.Verb == verbTransfer && e.Word == done && e.ReturnAt == transfer.AtCommit &&
		e.State == transfer.StateCommitted && e.Epoch < t.Epoch
}

// answer returns the entry with the answer to its call.
func (e entry) answer(rec transfer.Record, err error) entry {
	e.Word, e.State, e.Epoch = wordOf(err), rec.State, rec.Epoch
	if e.Verb == verbExtend {
		e.ExpiresAt = rec.ExpiresAt
	}
	if rec.Failure != nil {
		e.Code = rec.Failure.Code
	}
	if err != nil {
		e.Text = err.Error()
	}
	return e
}

// wordOf reads an error as the library documents it.
func wordOf(err error) word {
	var refusal *transfer.RefusedError
	switch {
	case err == nil:
		return done
	case errors.Is(err, transfer.ErrInDoubt):
		return inDoubt
	case errors.Is(err, transfer.ErrUnsettled):
		return done // The record is in StateCommitted, and the money has moved for good.
	// These come first: if the reversal is stored, the error is a refusal as well.
	case errors.Is(err, transfer.ErrAlreadyReversed):
		return alreadyReversed
	case errors.Is(err, transfer.ErrReversalExceeds):
		return reversalExceeds
	case errors.As(err, &refusal), errors.Is(err, transfer.ErrCancelled), errors.Is(err, transfer.ErrExpired):
		return refused
	case errors.Is(err, transfer.ErrNotHeld):
		return notHeld
	case errors.Is(err, transfer.ErrNotReversible):
		return notReversible
	case errors.Is(err, transfer.ErrIDConflict):
		return conflict
	case errors.Is(err, transfer.ErrAlreadyCommitted):
		return tooLate
	case errors.Is(err, transfer.ErrTransferNotFound):
		return notFound
	case errors.Is(err, transfer.ErrAccountBusy), errors.Is(err, transfer.ErrAccountNotEmpty):
		return keptOpen
	case errors.Is(err, transfer.ErrInvalidRequest), errors.Is(err, transfer.ErrUnsupportedDeployment):
		return rejected
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, transfer.ErrClosed), errors.Is(err, engine.ErrNothingSent):
		return unwritten
	}
	// A server that is away for engine.AwayLimit is no excuse: callers wait less than
	// that.
	return rejected
}

// reporter writes entries to the parent, each as a whole.
type reporter struct {
	mu  sync.Mutex
	out *json.Encoder
}

func newReporter(out io.Writer) *reporter { return &reporter{out: json.NewEncoder(out)} }

// write returns when the entry is in the pipe.
// From then on it outlives this process.
func (r *reporter) write(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// It fails only if the parent is dead, and then the end of the input stops this
	// worker.
	_ = r.out.Encode(e)
}

// during reports a call when it begins and when it has its answer.
func (r *reporter) during(ctx context.Context, e entry, call func(context.Context) (transfer.Record, error)) entry {
	e.Began = time.Now()
	r.write(e)
	e = e.answer(call(ctx))
	e.Ended = time.Now()
	r.write(e)
	return e
}
