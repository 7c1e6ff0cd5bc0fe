package transfer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/patience"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/recovery"
)

// RecoveryReport counts what a sweep has done.
// Found is the sum of Succeeded, Failed and Stuck.
type RecoveryReport struct {
	// Found counts the stalled transfers that this sweep took over, or tried to.
	// Those that others have finished, or wait for, don't count.
	Found int
	// Succeeded counts those that were brought to StateSuccess.
	Succeeded int
	// Failed counts those that were brought to StateFail.
	Failed int
	// Expired counts the holds that have run out.
	// They are among the Failed.
	Expired int
	// Stuck counts those that were left as they are.
	// A collection is not registered here, an account is gone, a server is away, or this
	// process is working on the transfer already and nobody waits for that: see [Query].
	// Transfers that were under way when ctx ended go on in the background.
	Stuck int
}

// RecoverOption changes what Recover does.
type RecoverOption func(*recovering)

type recovering struct{ untilFinished bool }

// UntilFinished makes Recover wait for what is too young to have stalled, and for what
// others are working on.
// It notes every transfer that is unfinished now, and returns when each of them is final.
// It leaves to another process what that one finishes meanwhile, and takes over what
// nobody finishes, as soon as it has stalled.
// So after a crash one call, of about a stall threshold, leaves nothing behind that was
// there when it began.
//
// It does not wait for a transfer in StateInitiated, for a hold that has not expired, or
// for a transfer that can't be finished: that one counts as Stuck, or [Query].Stuck lists
// it.
// When ctx ends first, the error is that of ctx, and the report counts what was done by
// then.
// Give ctx a deadline that is longer than the stall threshold.
func UntilFinished() RecoverOption { return func(r *recovering) { r.untilFinished = true } }

// recoveringBy applies the options.
func recoveringBy(opts []RecoverOption) (r recovering, err error) {
	for _, opt := range opts {
		if opt == nil {
			return r, invalid("a nil RecoverOption")
		}
		opt(&r)
	}
	return r, nil
}

// Recover takes over the transfers that have shown no sign of life for the stall
// threshold, by the server's clock, and brings them to their end.
// Committed ones go to StateSuccess, others go where the policy says (see
// [WithStallPolicy]).
// It leaves holds alone until they expire, and then voids them.
// It leaves transfers in StateInitiated to [Coordinator.Run].
// It is safe beside live executions and other sweeps.
//
// A server that is away doesn't hold up transfers that don't touch it.
// When many transfers hang, the others that touch the same places wait until all else was
// begun, and if they still hang after 30 s more they are Stuck.
//
// A transfer that can't be finished, because an account is gone or the server refuses to
// write to it, doesn't hold up the others.
// Its [Record].Stuck says why, and [Query].Stuck lists all of these.
// It is tried again after one stall threshold, then after 2, 4 … 64, each counted from
// the latest try, until the cause is repaired.
// To retry sooner after a repair, call Recover on a Coordinator with a threshold of zero.
//
// Recover does not see what is younger than the threshold.
// So a process that starts again at once after a crash finds nothing yet of what the
// crash has left, and a Recover at its start reports zero.
// [Coordinator.Run] finds it within seconds, and [UntilFinished] makes Recover wait for
// it.
//
//   - nil: everything that was due was begun; the report says what became of it.
//   - ErrUnauthorized: some transfers, or all, are Stuck because a right is missing.
//     Grant the right that the [UnauthorizedError] names, and recover again.
//   - ErrClosed, ErrUnsupportedDeployment, the error of ctx, or that of the search: not
//     everything was begun, and the report counts what was.
//     Recover again: that is safe at any time.
func (c *Coordinator) Recover(ctx context.Context, opts ...RecoverOption) (RecoveryReport, error) {
	how, err := recoveringBy(opts)
	if err != nil {
		return RecoveryReport{}, err
	}
	if err := c.readyForAny(ctx); err != nil {
		return RecoveryReport{}, err
	}
	return recovered(recovery.Sweep(ctx, c.recovery(), how.untilFinished))
}

// recovered answers with what a sweep has done.
func recovered(swept recovery.Swept) (RecoveryReport, error) {
	err := withCause(withCause(swept.Err, swept.Ended), swept.Denied)
	return RecoveryReport(swept.Report), err
}

// Run works until ctx ends.
// It runs submitted transfers whose time has come, voids holds that have expired,
// recovers stalled transfers, and those of processes that have died, within seconds, and
// delivers events (see [WithEvents]).
// Many processes may run it at once: they share the work.
// With nothing to do it asks the server two or three times a second.
// While this process has callers of new transfers, at most 64 submitted ones are in
// progress in it for each set of clusters that transfers touch, besides those that wait
// for a locked document.
// So those callers don't wait for hundreds of others.
//
// When ctx ends it begins nothing new, and waits for what it has begun, 10 s at most, and
// then for the handlers of events, some 5 s at most.
// [Coordinator.Healthy] says whether it works.
//
// It waits for a server that is away.
//
//   - nil: ctx has ended, or the Coordinator was closed meanwhile, and what it had begun
//     is done, or goes on in the background because a server is away.
//   - ErrUnauthorized: a right that it needs is missing when it begins, or the
//     password is wrong.
//     A right that is revoked later doesn't end it: it logs a warning and tries again
//     every few seconds.
//     So a mistake in the rights, once it is corrected, costs no restart.
//   - ErrClosed, ErrUnsupportedDeployment, mongo.ErrClientDisconnected: the
//     Coordinator was closed before, the server is unfit, or the client is disconnected.
//     Nothing that stalls is finished any more by this process: end it.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.patience.Watch(watching, c.wakeWorker) })
	defer watch.Wait()
	defer stop()
	return c.outbox.Beside(ctx, func(ctx context.Context) error {
		return recovery.Work(ctx, c.recovery())
	})
}

// recovery returns what Recover and Run work with.
func (c *Coordinator) recovery() recovery.Settings {
	return recovery.Settings{
		Queries:    c.queries,
		Engine:     c.engine,
		Notes:      c.notes,
		Process:    c.pulse.Process(),
		Health:     c.health,
		Log:        c.log,
		Now:        c.now,
		Threshold:  c.settings.stallThreshold,
		MaxPending: c.settings.group.MaxPending,
		TakeOver:   c.takeOver(),
		Expire:     expire(),
		Submitted:  c.wake,
		Swept:      c.observeSweeps(),
		Count:      c.countForObserver(),
		ErrClosed:  ErrClosed,
		Ready:      c.readyForAny,
		Permits:    c.deployment.CheckRights,
		Read:       c.read,
		Denied:     denied,
		Named:      asUnauthorized,
		Finish:     c.finishStalled,
		Run:        c.runSubmitted,
	}
}

// finishStalled takes over a transfer that has stood still for long enough, or a hold
// that has expired, and brings it to its end.
func (c *Coordinator) finishStalled(
	ctx context.Context, t document.Transfer, start protocol.Start, quiet time.Duration,
) recovery.Result {
	line := c.lineOf(ctx, sweepVerb(start), t.ID)
	ctx = line.ctx
	result, err := c.finish(ctx, t, start, quiet)
	line.swept(ctx, result, err)
	unanswered := err != nil && gaveUp(ctx, err)
	if err != nil {
		err = withCause(err, result.Cause)
	}
	result.Cause = asUnauthorized(result.Cause)
	return recovery.Result{Result: result, Err: err, Unanswered: unanswered}
}

// finish is finishStalled without its line and its answer.
func (c *Coordinator) finish(
	ctx context.Context, t document.Transfer, start protocol.Start, quiet time.Duration,
) (result engine.Result, err error) {
	limited, cancel := context.WithTimeout(ctx, recovery.Limit)
	defer cancel()
	attempt, err := c.newAttempt(ctx, t, reasonOf(start))
	if err == nil {
		attempt.Threshold = quiet
		result, err = c.engine.Execute(limited, attempt, start, protocol.Complete)
	}
	if err == nil && result.Outcome == protocol.Outdated {
		if t, err = c.replan(ctx, result.Transfer); err == nil {
			return c.finish(ctx, t, protocol.Start{Claim: protocol.Replan}, quiet)
		}
	}
	return result, err
}

// runSubmitted runs one submitted transfer, unless another worker was first, or it waits
// for funds.
// After the limit the transfer goes on in the background, and others get its slot.
func (c *Coordinator) runSubmitted(ctx context.Context, t document.Transfer) (recovery.Ending, error) {
	limited, cancel := context.WithTimeout(ctx, recovery.Limit)
	defer cancel()
	over, how, err := c.admit(limited, t)
	if over == nil {
		return how, err
	}
	defer over()
	line := c.lineOf(limited, "run", t.ID)
	a := c.execute(engine.ForWorker(line.ctx), t, terms{start: protocol.Start{Claim: protocol.FromInitiated, WaitWhileBusy: true}})
	if a.done {
		line.ran(ctx, &a.rec, a.err)
	} else {
		line.overtaken()
	}
	switch {
	case !a.done:
		return recovery.Overtaken, nil
	case denied(a.err), a.done && (a.rec.State.Final() || a.rec.State == StateCommitted):
		return recovery.Answered, a.err
	case a.done && gaveUp(ctx, a.err):
		return recovery.Unanswered, a.err
	}
	return recovery.Inconclusive, a.err
}

// admit looks at a submitted transfer that may wait for funds before it is run, and puts
// it off where they are lacking.
// Otherwise it returns a function to be called when the transfer has been run.
func (c *Coordinator) admit(
	ctx context.Context, t document.Transfer,
) (over func(), how recovery.Ending, err error) {
	switch {
	case sound(t) != nil: // who runs it says what is wrong
		return func() {}, 0, nil
	case !patience.Waits(t):
		return c.patience.Promise(t), 0, nil
	}
	line := c.lineOf(ctx, "postpone", t.ID)
	ctx = line.ctx
	admitted := false
	if err = c.connect(ctx, &t); err == nil {
		admitted, over, err = c.patience.Admit(ctx, t)
	}
	if admitted {
		line.overtaken()
		return over, 0, nil
	}
	line.ran(ctx, &Record{ID: t.ID, State: StateInitiated}, err)
	switch {
	case err == nil, denied(err):
		return nil, recovery.Answered, err
	case errors.Is(err, collections.ErrUnsupported), ctx.Err() != nil:
		return nil, recovery.Inconclusive, err
	}
	return nil, recovery.Unanswered, err
}

// gaveUp reports whether an error says that a cluster has not answered, and not that the
// caller's time is over.
func gaveUp(ctx context.Context, err error) bool {
	if denied(err) {
		return false
	}
	for _, cause := range []error{errAway, engine.ErrUnfinished, engine.ErrNothingSent, ErrInDoubt} {
		if errors.Is(err, cause) {
			return ctx.Err() == nil
		}
	}
	return false
}
