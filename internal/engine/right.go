package engine

import "github.com/mongotransfer/transfer/internal/wire"

// missingRight is a database right that an execution turned out to lack.
// Repeating a command that the server refuses is useless, and keeps the reason from the
// caller.
// So the execution stops, as if its process had died at that moment:
//
//  1. A debits an account, and may not write to the other one.
//  2. A stores the reason and returns it to its caller. The caller can't know where the
//     money is: a command that was refused as a whole doesn't report what it has written.
//  3. An administrator grants the right. Recovery takes the transfer over and replaces
//     the fences, as after any other stop in the middle.
type missingRight struct {
	participant int // NoParticipant: the collection of transfers
	cause       error
}

// noteMissingRight records that the server refused a task for lack of a right, if the
// task has no other answer.
func (j *job) noteMissingRight(t *task) {
	if !t.answered() && wire.Denied(t.Cause) != nil {
		j.missingRight = &missingRight{t.Op.Participant, t.Cause}
	}
}

// stopForMissingRight ends a job that lacks a right.
// If its transfer may be stored, the reason is stored with it.
func (e *Engine) stopForMissingRight(j *job) {
	j.attempt.Cause = j.missingRight.cause
	if j.mayBeStored() {
		e.end(j, ErrDenied)
		return
	}
	e.end(j, ErrNothingSent)
}

// failureWhenStuck returns the error of a job whose stuck reason was stored.
func (j *job) failureWhenStuck() error {
	if j.missingRight != nil {
		return ErrDenied
	}
	return nil
}
