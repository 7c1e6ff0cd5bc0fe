package engine

import (
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// barrier is the right that an execution has been found to lack. To repeat what the
// server refuses is of no use, and keeps the caller from hearing why. So an execution that
// meets one stops, as if its process had died just then:
//
//  1. A debits an account, and may not write to the other one.
//  2. A stores why, and tells its caller, who can't know where the money is: the answer
//     to a command that was refused as a whole says nothing of what it has done.
//  3. The right is granted. Recovery takes the transfer over, and replaces the fences, as
//     after any other stop in the middle.
type barrier struct {
	participant int // NoParticipant: the transfers
	cause       error
}

// bar takes down that a task was refused for want of a right, where it has no other
// answer.
func (r *run) bar(t *task) {
	unanswered := t.Answer.Result == protocol.Unknown || t.Answer.Result == protocol.NotSent
	if unanswered && wire.Refused(t.Cause) != nil {
		r.barred = &barrier{t.Op.Participant, t.Cause}
	}
}

// stop ends a run that lacks a right. What was claimed is stored: the reason is noted
// with it.
func (e *Engine) stop(r *run) {
	r.work.Cause = r.barred.cause
	if r.execution.Claimed() || r.execution.ClaimInDoubt() {
		e.end(r, ErrRefused)
		return
	}
	e.end(r, ErrNothingSent)
}

// stuckFailure returns the error of a run that has noted what it is stuck at.
func (r *run) stuckFailure() error {
	if r.barred != nil {
		return ErrRefused
	}
	return nil
}
