package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// grace is how long a handler has to come back once its context has ended.
	grace = time.Second
	// maxCauseBytes and maxStackBytes bound what is logged of a handler's failure.
	maxCauseBytes = 1 << 10
	maxStackBytes = 4 << 10
)

var (
	errDeaf   = errors.New("the handler has not come back in time")
	errExited = errors.New("the handler has ended its goroutine")
	errLost   = errors.New("whoever had it in hand has not come back")
)

// panicError is the panic of a handler.
type panicError struct {
	cause any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("the handler has panicked: %v", e.cause) }

// Unwrap returns what the handler has panicked with, if that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.cause.(error)
	return err
}

// deliver calls the handler of an event in hand, and marks what became of it.
func (r *run) deliver(e item) {
	defer r.Hand.release(1)
	if !r.enter(e) {
		r.marks.add(e, undone)
		return
	}
	err := r.handle(e)
	r.leave(e)
	switch {
	case err == nil:
		r.marks.add(e, delivered)
	case r.handling.Err() != nil:
		r.marks.add(e, undone) // the worker has ended first, and not the handler failed
	default:
		r.report(e, err)
		r.marks.add(e, failed)
	}
}

// report logs that a handler has failed.
func (r *run) report(e item, err error) {
	attrs := []slog.Attr{
		slog.String(words.KeyTransfer, words.Clip(e.Transfer.ID)), slog.String(words.KeyEvent, string(e.Kind)),
		slog.Int(words.KeyAttempt, e.Attempt), slog.String(words.KeyCause, words.Short(err.Error(), maxCauseBytes)),
	}
	what := "an event was not delivered: it is tried again"
	if panicked := (*panicError)(nil); errors.As(err, &panicked) {
		what = "the handler of an event has panicked: it is tried again"
		attrs = append(attrs, slog.String(words.KeyStack, panicked.stack))
	}
	if e.lost || e.Attempt >= r.MaxAttempts {
		r.Log.LogAttrs(r.handling, slog.LevelWarn, "an event was given up: see Query.Undelivered and Redeliver", attrs...)
		return
	}
	wait := transition.RetryAfter(int64(e.Attempt))
	r.mu.Lock()
	now := r.Now()
	if due := now.Add(wait + markTime); r.due.Before(now) || due.Before(r.due) {
		r.due = due
	}
	r.mu.Unlock()
	r.logTrouble(r.handling, slog.LevelInfo, what, append(attrs, slog.Duration(words.KeyPause, wait))...)
}

// reportLost reports that an event was given up because its last attempt has not ended:
// as a rule because the process was killed meanwhile.
func (r *run) reportLost(e item) {
	r.report(e, errLost)
	if r.Done != nil {
		r.Done(Attempt{Event: e.Event, Context: r.handling, Err: errLost, GivenUp: true})
	}
}

// enter waits until a handler may begin. It reports false where that takes so long that
// the lease might run out first, or the worker ends.
func (r *run) enter(e item) bool {
	timer := time.NewTimer(startLimit - r.Now().Sub(e.since))
	defer timer.Stop()
	if e.Attempt > 1 {
		select {
		case r.retried <- struct{}{}:
		case <-timer.C:
			return false
		case <-r.handling.Done():
			return false
		}
	}
	select {
	case r.running <- struct{}{}:
		return true
	case <-timer.C:
	case <-r.handling.Done():
	}
	if e.Attempt > 1 {
		<-r.retried
	}
	return false
}

// leave gives the place of a handler to another one.
func (r *run) leave(e item) {
	<-r.running
	if e.Attempt > 1 {
		<-r.retried
	}
}

// handle calls the handler, and returns why the event counts as not delivered.
func (r *run) handle(e item) error {
	ctx, cancel := context.WithTimeout(r.handling, handlerLimit)
	defer cancel()
	begun := r.Now()
	err := r.call(ctx, e)
	if r.Done != nil {
		r.Done(Attempt{
			Event: e.Event, Context: ctx, Took: r.Now().Sub(begun), Err: err,
			GivenUp: err != nil && e.Attempt >= r.MaxAttempts && r.handling.Err() == nil,
		})
	}
	return err
}

// call calls the handler. One that does not heed the end of its context goes on without
// its place.
func (r *run) call(ctx context.Context, e item) error {
	ended := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if cause := recover(); cause != nil {
				stack := debug.Stack()
				err = &panicError{cause, string(stack[:min(len(stack), maxStackBytes)])}
			}
			ended <- err
		}()
		err = r.Handle(ctx, e.Event)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
	}
	select {
	case err := <-ended:
		return err
	case <-r.handling.Done():
		return errDeaf
	case r.deaf <- struct{}{}:
		go func() {
			late := <-ended
			<-r.deaf
			r.Log.LogAttrs(r.handling, slog.LevelDebug, "a handler has come back too late",
				slog.String(words.KeyTransfer, words.Clip(e.Transfer.ID)), slog.Any(words.KeyCause, late))
		}()
		return errDeaf
	}
}
