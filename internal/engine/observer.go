package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/words"
)

// Observer is told what an engine does.
// Each of its functions may be nil, and is called without the engine's lock by the
// goroutine that does the work.
type Observer struct {
	// Trails says that the contexts of callers may have trails.
	Trails bool
	// CommandDone is called after each command.
	CommandDone func(CommandInfo)
	// TakenOver is called when an execution has taken over a transfer that had stalled.
	TakenOver func(context.Context, Takeover)
}

// CommandInfo is a command that has returned.
type CommandInfo struct {
	// Verb is what the command does: claim, record, read, look or write.
	Verb string
	// Operations is how many operations it carried.
	Operations int
	// Queued is how many operations were ready to be sent to the same cluster, and were
	// not, when it was sent.
	Queued int
	// Took is how long the command took.
	Took time.Duration
	// Err is the reason where no operation was answered.
	Err error
}

// Takeover is a transfer that was taken over because it had stalled.
type Takeover struct {
	// ID is the transfer's, and State where it stood.
	ID    string
	State protocol.State
	// Verb is what the call was for that has taken it over.
	Verb string
	// Owner is the execution that had it before.
	Owner string
	// Idle is how long it had shown no sign of life.
	Idle time.Duration
	// Takeovers counts those of the transfer, with this one.
	Takeovers int64
}

// Observe sets the observer.
// It is called before the first execution.
func (e *Engine) Observe(o Observer) { e.observer = o }

// trailOf returns the trail of a caller, nil if there is none.
func (e *Engine) trailOf(ctx context.Context) *stages.Trail {
	if !e.observer.Trails {
		return nil
	}
	return stages.Of(ctx)
}

// stalledTransfer is a transfer as it was before a takeover.
type stalledTransfer struct {
	owner string
	since time.Time
}

// isTakeover reports whether a way of claiming takes over what has stalled.
func isTakeover(claim protocol.ClaimKind) bool {
	return claim == protocol.TakeOver || claim == protocol.TakeUnheld
}

// stalledBefore returns what a job takes over, nil if it does not.
func stalledBefore(t *document.Transfer, claim protocol.ClaimKind) *stalledTransfer {
	if !isTakeover(claim) {
		return nil
	}
	return &stalledTransfer{t.Owner, t.LastModified}
}

// reportTakeover reports the job's takeover, if an answered task is one.
func (e *Engine) reportTakeover(j *job, t *task) {
	if j.stalled == nil || t.Op.Kind != protocol.Claim || t.Answer.Result != protocol.Applied {
		return
	}
	before, now := j.stalled, j.attempt.Transfer
	j.stalled = nil
	info := Takeover{
		ID: now.ID, State: now.State, Verb: j.trail.Verb(), Owner: before.owner,
		Idle: now.LastModified.Sub(before.since), Takeovers: now.Attempts,
	}
	ctx := context.WithoutCancel(j.caller)
	if e.log.Enabled(ctx, slog.LevelInfo) {
		e.log.LogAttrs(ctx, slog.LevelInfo, "a transfer was taken over", slog.String(words.KeyTransfer, words.Clip(info.ID)),
			slog.String(words.KeyState, words.Clip(string(info.State))), slog.String(words.KeyOwner, words.Clip(info.Owner)),
			slog.Duration(words.KeyIdle, info.Idle))
	}
	if e.observer.TakenOver != nil {
		e.observer.TakenOver(ctx, info)
	}
}

// enterStage records, and logs, the stage to which a job's operations bring it.
func (e *Engine) enterStage(j *job, operations []protocol.Operation, now time.Time) {
	if j.trail == nil && !j.tellsStages {
		return
	}
	name := stageOf(operations)
	if !j.callerKnows {
		j.trail.Enter(name, now)
	}
	if j.tellsStages && name != j.stage {
		e.log.LogAttrs(context.WithoutCancel(j.caller), slog.LevelDebug, StageMessage,
			slog.String(words.KeyTransfer, words.Clip(j.attempt.Transfer.ID)), slog.String(words.KeyStage, name))
	}
	j.stage = name
}

// StageMessage is the message of the line that says which stage a transfer has come to.
const StageMessage = "a transfer has come to a stage"

// stageOf names the stage of the operations of one round.
// What looks into a doubt beside others doesn't count.
// Settling is clearing where others are cleared: nothing is due there any more.
func stageOf(operations []protocol.Operation) string {
	name := stages.Look
	for _, op := range operations {
		switch op.Kind {
		case protocol.ReadFence:
			return stages.Read
		case protocol.Claim:
			return stages.Claim
		case protocol.Prepare:
			return stages.Prepare
		case protocol.MarkHeld:
			return stages.Hold
		case protocol.Pay:
			return stages.Settle
		case protocol.Undo:
			return stages.Undo
		case protocol.Clear:
			return stages.Clear
		case protocol.Finish:
			return stages.Finish
		case protocol.Decide:
			if op.To.Back() {
				return stages.Undo
			}
			return stages.Settle
		case protocol.Settle: // it pays, unless others are paid already
			name = stages.Settle
		case protocol.ReadTransfer, protocol.LookTransfer, protocol.Verify, protocol.Look, protocol.FenceOnly:
		}
	}
	return name
}

// verbOf names what the commands of a lane do, by the operation for which it was made.
func verbOf(kind protocol.Kind) string {
	switch kind {
	case protocol.Claim:
		return "claim"
	case protocol.ReadFence, protocol.ReadTransfer:
		return "read"
	case protocol.Look, protocol.LookTransfer:
		return "look"
	case protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Finish:
		return "record"
	case protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly:
	}
	return "write"
}

// describeDone returns what there is to report of a command that has returned, before its
// answers are handed out.
func (e *Engine) describeDone(c *command) CommandInfo {
	info := CommandInfo{Verb: c.lane.verb, Operations: len(c.tasks), Queued: c.queued, Took: e.now().Sub(c.sentAt)}
	if !slices.ContainsFunc(c.tasks, (*task).answered) {
		info.Err = c.tasks[0].Cause
	}
	return info
}
