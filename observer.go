package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/recovery"
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/words"
)

// Observer has functions that a Coordinator calls: for metrics, traces and tests.
// Each function may be nil, and then costs nothing.
// The package transferotel has an Observer for OpenTelemetry.
//
// The goroutines that do the work call them, many at once, and wait for each.
// CommandDone and TakenOver delay other callers as well: let another goroutine do what
// takes long, and what calls the Coordinator, which might wait for them.
// A function that panics changes nothing for the transfer.
// The first panic of each function is logged as a warning.
type Observer struct {
	// TransferStarted is called when a call about one transfer begins, and when Run or
	// Recover begins with one.
	// The call goes on with the context that it returns: that of a span, for example.
	// What it returns has to be derived from the given one; nil stands for that one.
	// A TransferDone follows.
	TransferStarted func(context.Context, TransferStart) context.Context
	// TransferDone is called when that call answers.
	TransferDone func(TransferInfo)
	// CommandDone is called for each command by which transfers are claimed, prepared,
	// paid and recorded, and which the transfers of many callers share.
	// It is not called for other commands, such as those of reads, Submit and lists: the
	// driver's event.CommandMonitor sees all.
	CommandDone func(CommandInfo)
	// TakenOver is called when this process has taken over a transfer that had stalled,
	// or whose process had died.
	// It is not called if the server's answer to the takeover was lost.
	TakenOver func(TakeoverInfo)
	// Swept is called after each Recover, and after each sweep of Run for what has
	// stalled.
	// It is also called after Run has searched for expired holds, or for transfers of
	// dead processes, if that search has brought any to its end.
	// The duration is how long the sweep took.
	Swept func(RecoveryReport, time.Duration)
	// EventDone is called after each attempt to deliver an event.
	EventDone func(EventInfo)
	// Counted is called with what [Coordinator.Stats] returns, some four times a minute
	// while Run works.
	// Where it is nil, Run counts nothing.
	Counted func(Stats)
}

// TransferStart is the beginning of a call about one transfer.
type TransferStart struct {
	// ID is the transfer's, whatever the caller has given as one.
	ID string
	// Verb is what the call is for: transfer, submit, hold, extend, post, void, cancel or
	// reverse.
	// For Run and Recover it is run, postpone, recover or expire.
	Verb string
}

// TransferInfo is a call about one transfer that has its answer.
type TransferInfo struct {
	// Context is what TransferStarted has returned, or the caller's.
	// It may have ended.
	Context context.Context
	// ID is as in [TransferStart].
	ID string
	// Verb is as in [TransferStart].
	Verb string
	// Outcome says where the call leaves the money: see [OutcomeOf].
	// It is Unchanged where Run or Recover finds that others were first, or that a
	// transfer need not be put off.
	Outcome Outcome
	// State is where the transfer stands, "" where that is not known.
	State State
	// Err is the error of the call.
	// For Run and Recover it is why the transfer could not be finished.
	Err error
	// Begun is when the call began, by the process's clock.
	Begun time.Time
	// Took is how long the call took.
	Took time.Duration
	// Stages are those that the call has gone through, in this order, without what goes
	// on in the background after the answer.
	Stages []Stage
}

// Stage is a part of a call's time.
type Stage struct {
	// Name is wait, read, store, claim, prepare, hold, settle, undo, clear, finish or
	// look.
	//
	//   - wait: for a place ([GroupCommit]), or for another call about the same transfer.
	//   - read: what the transfer needs, and store: for a worker.
	//   - claim, prepare, hold, settle: reserve and pay.
	//     Settle has the commit's record in it.
	//   - undo: gives back what was reserved, after a refusal or a cancellation.
	//   - clear, finish: remove marks, and record the end.
	//   - look: finds out what became of a write whose answer is in doubt.
	Name string
	// Begun is when the call reached it, by the process's clock.
	Begun time.Time
	// Took is how long it stayed there, pauses included.
	Took time.Duration
}

// CommandInfo is a command that has returned.
type CommandInfo struct {
	// Verb is what the command does: claim, record, read, look or write.
	// A claim and a record write to transfers, a write writes to accounts and documents,
	// and a look reads what has to be certain.
	Verb string
	// Operations is how many operations it has carried, one for each transfer and
	// document.
	Operations int
	// Queued is how many more could have been sent to the same cluster when it was sent.
	Queued int
	// Took is how long the command took.
	Took time.Duration
	// Err says why, if the command has no answer.
	Err error
}

// TakeoverInfo is a transfer that this process has taken over because it had stalled, or
// its process had died.
type TakeoverInfo struct {
	// Context is that of the call that has taken it over, without its end.
	Context context.Context
	// ID is the transfer's.
	ID string
	// Verb is what the call was for: recover, or the verb of a caller that has waited.
	Verb string
	// State is where the transfer stood.
	State State
	// Owner is the execution that had it before.
	Owner string
	// Idle is how long that execution had written nothing.
	Idle time.Duration
	// Takeovers counts those of the transfer, with this one.
	Takeovers int
}

// EventInfo is an attempt to deliver an event, or that one was given up because the last
// attempt has not come back.
type EventInfo struct {
	// Context is that of the handler, or of Run where there was none.
	Context context.Context
	// ID is that of the event.
	ID string
	// Transfer is the ID of the event's transfer.
	Transfer string
	// Kind is the event's kind in lower case: held, succeeded or failed.
	Kind string
	// Attempt counts the attempts, from 1 on.
	Attempt int
	// GivenUp says that this was the last one.
	GivenUp bool
	// Took is how long the handler took.
	Took time.Duration
	// Err is the handler's error, nil where the event was delivered.
	Err error
}

// WithObserver sets the functions that the Coordinator calls.
// Defaults to none.
func WithObserver(o Observer) Option { return func(s *settings) { s.observer = o } }

// guarded returns an observer whose panics do no harm.
func (o Observer) guarded(log *slog.Logger) Observer {
	if started := o.TransferStarted; started != nil {
		g := newGuard(log, "TransferStarted")
		o.TransferStarted = func(ctx context.Context, start TransferStart) context.Context {
			defer g.recover()
			return started(ctx, start)
		}
	}
	o.TransferDone = guardedFunc(log, "TransferDone", o.TransferDone)
	o.CommandDone = guardedFunc(log, "CommandDone", o.CommandDone)
	o.TakenOver = guardedFunc(log, "TakenOver", o.TakenOver)
	o.EventDone = guardedFunc(log, "EventDone", o.EventDone)
	o.Counted = guardedFunc(log, "Counted", o.Counted)
	if swept := o.Swept; swept != nil {
		g := newGuard(log, "Swept")
		o.Swept = func(report RecoveryReport, took time.Duration) {
			defer g.recover()
			swept(report, took)
		}
	}
	return o
}

// guardedFunc returns a function of an observer that does no harm, nil for nil.
func guardedFunc[T any](log *slog.Logger, name string, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	g := newGuard(log, name)
	return func(info T) {
		defer g.recover()
		f(info)
	}
}

// guard ends the panics of one function, and logs the first of them.
type guard struct {
	log  *slog.Logger
	name string
	once sync.Once
}

func newGuard(log *slog.Logger, name string) *guard { return &guard{log: log, name: name} }

// recover is deferred.
func (g *guard) recover() {
	panicked := recover()
	if panicked == nil {
		return
	}
	g.once.Do(func() {
		g.log.Warn("a function of the observer has panicked, and its other panics are not logged",
			slog.String(words.KeyFunction, g.name), slog.Any(words.KeyCause, errors.New(words.Clip(fmt.Sprint(panicked)))))
	})
}

// observeSweeps returns what reports a sweep to the observer, nil if it doesn't ask.
func (c *Coordinator) observeSweeps() func(recovery.Report, time.Duration) {
	swept := c.settings.observer.Swept
	if swept == nil {
		return nil
	}
	return func(report recovery.Report, took time.Duration) { swept(RecoveryReport(report), took) }
}

// countForObserver returns what counts for the observer, nil if it doesn't ask.
func (c *Coordinator) countForObserver() func(context.Context) error {
	counted := c.settings.observer.Counted
	if counted == nil {
		return nil
	}
	return func(ctx context.Context) error {
		stats, err := c.Stats(ctx)
		if err == nil {
			counted(stats)
		}
		return err
	}
}

// watchesCalls reports whether the observer asks for calls about a transfer.
func (o *Observer) watchesCalls() bool { return o.TransferStarted != nil || o.TransferDone != nil }

// watchesTransfers reports whether the observer asks for single transfers, and needs the
// context that goes along with each.
func (o *Observer) watchesTransfers() bool { return o.watchesCalls() || o.TakenOver != nil }

// ofEngine returns the observer of an engine.
func (o *Observer) ofEngine() engine.Observer {
	told := engine.Observer{Trails: o.watchesTransfers()}
	if o.CommandDone != nil {
		told.CommandDone = func(info engine.CommandInfo) { o.CommandDone(CommandInfo(info)) }
	}
	if o.TakenOver != nil {
		told.TakenOver = func(ctx context.Context, t engine.Takeover) {
			o.TakenOver(TakeoverInfo{
				Context: ctx, ID: t.ID, Verb: t.Verb, State: State(t.State), Owner: t.Owner, Idle: t.Idle, Takeovers: int(t.Takeovers),
			})
		}
	}
	return told
}

// handled is the message of the one line that each call about a transfer has, and each
// transfer that a worker or a sweep has worked on.
const handled = "a transfer was handled"

// logLine is that line, which is written at the end, and the report to the observer.
// Where nobody asks it costs nothing.
type logLine struct {
	ctx         context.Context // that the call goes on with
	coordinator *Coordinator    // nil: nobody asks
	verb, id    string
	begun       time.Time
	trail       *stages.Trail
}

// lineOf begins the line of a transfer.
// The call goes on with the line's context.
func (c *Coordinator) lineOf(ctx context.Context, verb, id string) logLine {
	o := &c.settings.observer
	watched := o.watchesTransfers()
	if ctx == nil || !watched && !c.log.Enabled(ctx, slog.LevelInfo) {
		return logLine{ctx: ctx}
	}
	line := logLine{ctx: ctx, coordinator: c, verb: verb, id: id}
	if !watched && !c.log.Enabled(ctx, slog.LevelDebug) {
		return line // it is written where it says something special, without its time
	}
	line.begun = c.now()
	if o.TransferStarted != nil {
		if derived := o.TransferStarted(ctx, TransferStart{ID: id, Verb: verb}); derived != nil {
			line.ctx = derived
		}
	}
	if watched {
		line.ctx, line.trail = stages.With(line.ctx, verb)
	}
	return line
}

// enter records, and logs, that a call has come to a stage outside of the engine.
func (c *Coordinator) enter(ctx context.Context, id, stage string) {
	if c.settings.observer.watchesCalls() {
		stages.Of(ctx).Enter(stage, c.now())
	}
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.LogAttrs(ctx, slog.LevelDebug, engine.StageMessage,
			slog.String(words.KeyTransfer, words.Clip(id)), slog.String(words.KeyStage, stage))
	}
}

// end writes the line: where the transfer stands, if the record is its own, and the
// error.
// Then it reports the call to the observer.
func (l logLine) end(ctx context.Context, rec *Record, err error) {
	if l.coordinator == nil {
		return
	}
	level := slog.LevelDebug
	if errors.Is(err, ErrInDoubt) || errors.Is(err, ErrUnsettled) {
		level = slog.LevelInfo
	}
	l.write(ctx, level, rec, err)
	l.report(TransferInfo{ID: rec.ID, State: rec.State, Err: err})
}

// write writes the line at a level.
func (l logLine) write(ctx context.Context, level slog.Level, rec *Record, err error) {
	c := l.coordinator
	if !c.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.String(words.KeyTransfer, words.Clip(l.id)), slog.String(words.KeyVerb, l.verb))
	if rec.ID == l.id { // a reversal's may be that of the original
		attrs = append(attrs, slog.String(words.KeyState, words.Clip(string(rec.State))))
	}
	if err != nil {
		attrs = append(attrs, slog.Any(words.KeyCause, err))
	}
	if !l.begun.IsZero() {
		attrs = append(attrs, slog.Duration(words.KeyTook, c.now().Sub(l.begun)))
	}
	c.log.LogAttrs(ctx, level, handled, attrs...)
}

// swept ends the line of a transfer that a sweep has worked on.
func (l logLine) swept(ctx context.Context, result engine.Result, err error) {
	switch {
	case l.coordinator == nil:
		return
	case err != nil:
		err = withCause(err, result.Cause)
	case result.Outcome == protocol.Stuck:
		_, err = l.coordinator.stuck(recordOf(result.Transfer), result)
	case result.Outcome == protocol.Unclaimable:
		err = result.Cause
	case result.Outcome != protocol.Finished:
		l.overtaken()
		return
	}
	rec, outcome := Record{ID: l.id, State: State(result.State)}, OutcomeOf(err)
	if err == nil && rec.State == StateFail {
		outcome = Failed
	}
	l.write(ctx, slog.LevelDebug, &rec, err)
	l.report(TransferInfo{ID: rec.ID, State: rec.State, Err: err, Outcome: outcome})
}

// ran ends the line of what a worker has done with a submitted transfer.
// Its troubles are logged by the worker.
func (l logLine) ran(ctx context.Context, rec *Record, err error) {
	if l.coordinator != nil {
		l.write(ctx, slog.LevelDebug, rec, err)
		l.report(TransferInfo{ID: rec.ID, State: rec.State, Err: err})
	}
}

// overtaken ends the line of a worker or a sweep that had nothing to do: another one was
// first.
// It is not written.
func (l logLine) overtaken() {
	if l.coordinator != nil {
		l.report(TransferInfo{Outcome: Unchanged})
	}
}

// report reports a call that has ended to the observer.
// An outcome of 0 stands for that of the error.
func (l logLine) report(info TransferInfo) {
	done := l.coordinator.settings.observer.TransferDone
	if done == nil {
		return
	}
	if info.ID != l.id { // a reversal's record may be that of the original
		info.State = ""
	}
	if info.Outcome == 0 {
		info.Outcome = OutcomeOf(info.Err)
	}
	now := l.coordinator.now()
	info.Context, info.ID, info.Verb, info.Begun, info.Took = l.ctx, l.id, l.verb, l.begun, now.Sub(l.begun)
	for _, s := range l.trail.End(now) {
		info.Stages = append(info.Stages, Stage(s))
	}
	done(info)
}
