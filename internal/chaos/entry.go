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

// verb is what a client called.
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
	verbReverse  verb = "reverse"
	verbGet      verb = "get"
	verbClose    verb = "close"
	verbReopen   verb = "reopen"
	verbRecover  verb = "recover"
)

// stores reports whether the verb stores the transfer whose ID it is called with.
func (v verb) stores() bool {
	return v == verbTransfer || v == verbSubmit || v == verbHold || v == verbReverse
}

// word is what an answer says of the money.
type word string

const (
	unanswered word = ""
	done       word = "done"            // the record is in State
	refused    word = "refused"         // it has failed
	inDoubt    word = "in doubt"        // not known
	unwritten  word = "nothing written" // nothing was stored by this call
	rejected   word = "rejected"        // the library finds fault with the request or the server, or nobody knows what it means
	conflict   word = "conflict"
	tooLate    word = "too late" // to cancel, or to void
	notFound   word = "not found"
	keptOpen   word = "kept open" // the account: it is busy, or not empty
	notHeld    word = "not held"

	alreadyReversed word = "already reversed"
	notReversible   word = "not reversible"
)

// entry is one line of a worker's report: a call that begins, or its answer.
type entry struct {
	Call  string // names it
	Verb  verb
	ID    string         // of the transfer, or of the account
	Word  word           // empty when the call begins
	State transfer.State // of the record that was answered
	Code  string         // of the failure
	Text  string         // of the error
	Known bool           // the caller knew that the transfer, or the original of a reversal, is stored before it called
	Part  int64          // of a hold, that is to be posted; 0: all of it

	Held      bool // the caller knew that the transfer is held, or has been
	Succeeded bool // the caller knew that the original of a reversal has succeeded

	Began, Ended time.Time

	Recovered *transfer.RecoveryReport
}

// answer takes down what a call was told.
func (e entry) answer(rec transfer.Record, err error) entry {
	e.Word, e.State = wordOf(err), rec.State
	if rec.Failure != nil {
		e.Code = rec.Failure.Code
	}
	if err != nil {
		e.Text = err.Error()
	}
	return e
}

// wordOf reads an error as the documentation says that it is to be read.
func wordOf(err error) word {
	var refusal *transfer.RefusedError
	switch {
	case err == nil:
		return done
	case errors.Is(err, transfer.ErrInDoubt):
		return inDoubt
	case errors.Is(err, transfer.ErrUnsettled):
		return done // the record is in StateCommitted, and the money has moved for good
	case errors.Is(err, transfer.ErrAlreadyReversed): // First: where the reversal was stored it is a refusal as well.
		return alreadyReversed
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
	return rejected // A server that is away for engine.AwayLimit is no excuse either: callers have less patience.
}

// reporter writes entries to the parent, each in one piece.
type reporter struct {
	mu  sync.Mutex
	out *json.Encoder
}

func newReporter(out io.Writer) *reporter { return &reporter{out: json.NewEncoder(out)} }

// tell returns when the entry is in the pipe: from then on it outlives this process.
func (r *reporter) tell(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(e) // It fails only when the parent is dead, and then the end of the input stops this worker.
}

// during reports a call before and after it.
func (r *reporter) during(ctx context.Context, e entry, call func(context.Context) (transfer.Record, error)) entry {
	e.Began = time.Now()
	r.tell(e)
	e = e.answer(call(ctx))
	e.Ended = time.Now()
	r.tell(e)
	return e
}
