package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Limit is how long recovery waits for one transfer, which then goes on in the
// background.
const Limit = 30 * time.Second

// Settings are what recovery works with.
type Settings struct {
	// Queries finds the transfers.
	Queries *queries.Queries
	// Engine knows which of them are under way in this process.
	Engine *engine.Engine
	// Notes are what processes note of themselves, and Process is the identity of this
	// one.
	Notes   *liveness.Notes
	Process string
	// Health receives how a worker does.
	Health *Health
	// Log is where sweeps and troubles are logged.
	Log *slog.Logger
	// Now is the process's clock.
	Now func() time.Time
	// Threshold is how long a transfer shows no sign of life before it has stalled.
	Threshold time.Duration
	// MaxPending is how many transfers may be under way in this process.
	MaxPending int
	// MaxNoted is how many unfinished transfers a sweep waits for at once.
	// Their IDs are all that it keeps in memory.
	// Zero stands for 10,000: some megabytes.
	MaxNoted int
	// TakeOver is the start of an execution that takes over what has stalled.
	TakeOver protocol.Start
	// Expire is the start of an execution that voids a hold which has expired.
	Expire protocol.Start
	// Submitted receives a value when a transfer was submitted in this process.
	Submitted <-chan struct{}
	// ErrClosed is the error of a closed Coordinator.
	ErrClosed error

	// Swept is called after each sweep for what has stalled, and of each look for expired
	// holds, or for what dead processes have left, that has brought any to its end.
	// It may be nil.
	Swept func(Report, time.Duration)
	// Count counts what is unfinished, for whoever watches.
	// It may be nil: nobody does.
	Count func(context.Context) error

	// Ready waits until the server of the transfers is known to be fit.
	Ready func(context.Context) error
	// Permits reports whether the client's user has the rights that a worker needs.
	Permits func(context.Context) error
	// Read repeats a read until the read reports that it is done.
	Read func(ctx context.Context, read func(context.Context) (done bool, err error)) error
	// Denied reports whether an error says that a right is missing.
	Denied func(error) bool
	// Named gives an error that says so its public name.
	Named func(error) error
	// Finish drives a stored transfer from a start to its end, for no longer than Limit.
	// It takes the transfer over only if that has stood still for long enough.
	Finish func(ctx context.Context, t document.Transfer, start protocol.Start, quiet time.Duration) Result
	// Run runs a submitted transfer, unless another worker was first, for no longer than
	// Limit.
	// The error is the one that its caller would be given.
	Run func(ctx context.Context, t document.Transfer) (Ending, error)
}

// Result is how the recovery of one transfer ended.
type Result struct {
	engine.Result
	// Err is why the execution did not come to an end, with its cause.
	// It is nil where it did.
	Err error
	// Unanswered says that Err is about a cluster that has not answered in time, and not
	// about the end of the caller's context.
	Unanswered bool
}

// Report counts what a sweep has done.
// Found is the sum of Succeeded, Failed and Stuck.
type Report struct {
	// Found counts the transfers that the sweep took over, or tried to.
	Found int
	// Succeeded counts those that were brought to Success.
	Succeeded int
	// Failed counts those that were brought to Fail.
	Failed int
	// Expired counts the holds that have run out.
	// They are among the Failed.
	Expired int
	// Stuck counts those that were left as they are.
	Stuck int
}

// Swept is what a sweep has done, and why it has not done more.
type Swept struct {
	Report
	// Err is the error that has ended a search early.
	Err error
	// Ended is why the sweep has ended before everything was begun: its context has
	// ended, or the Coordinator was closed.
	Ended error
	// Denied is the first error that says that a right is missing.
	Denied error
}

// Sweep finishes all holds that have expired, and all transfers that have stalled, and
// waits for what it has begun.
// It comes back to what hangs before it counts that as stuck.
// With untilFinished it waits for all that is unfinished now.
func Sweep(ctx context.Context, settings Settings, untilFinished bool) Swept {
	s := newSweep(&settings, newSlots(&settings, settings.sweepSlots()))
	s.revisits = true
	sweep := s.everything
	if untilFinished {
		sweep = s.untilFinished
	}
	err := sweep(ctx)
	report := s.end()
	s.report(report)
	return Swept{Report: report, Err: err, Ended: s.ended, Denied: s.refused}
}

// sweepPeriod is the time between two sweeps for what has stalled.
func (s *Settings) sweepPeriod() time.Duration {
	return min(max(s.Threshold, shortestPeriod), longestPeriod)
}

// sweepSlots is how many transfers the sweeps of one owner work on at once.
// Callers get through beside them.
func (s *Settings) sweepSlots() int { return min(sweepWidth, max(2, s.MaxPending/2)) }

// workerSlots is how many submitted transfers a worker works on at once.
// Half of the places of executions are for others.
func (s *Settings) workerSlots() int { return min(workerWidth, max(2, s.MaxPending/2)) }

// lasting reports whether an error comes back however often a call is repeated: a right
// is missing, or the client is disconnected.
func (s *Settings) lasting(err error) bool {
	return s.Denied(err) || wire.Disconnected(err)
}

// pause waits for a while, or until a value is received.
// It reports false when ctx has ended, or the Coordinator is closed.
func (s *Settings) pause(ctx context.Context, wait time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-s.Engine.Closing():
		return false
	case <-ctx.Done():
		return false
	}
	return true
}
