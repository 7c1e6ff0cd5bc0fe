package protocol

import (
	"fmt"
	"slices"
)

// phase is what an execution is busy with.
type phase uint8

const (
	readingFences phase = iota + 1
	claiming
	checkingClaim
	preparing
	holding
	deciding
	settling // the fact stands: pays and the record go out
	fencing  // before a roll-back, by one who may not be the first
	clearing // removing the traces, as state says
	finishing
	checkingFinish
	ended
)

// Execution is one run of the state machine for one transfer.
// The zero value is of no use: see [New].
// It is no more than data: [Execution.Clone] forks it.
type Execution struct {
	start        Start
	phase        phase
	outcome      Outcome
	state        State // of the transfer, as stored, as far as this execution knows
	fact         bool  // every participant holds a trace: the transfer is committed
	epoch        int64 // 0 until claimed
	decision     State // set when the decision is asked for; it never changes
	refusal      Refusal
	dirty        bool // some prepare may still be on its way
	mustLook     bool // it must learn first whether it owns the transfer
	claimSent    bool // a claim was handed out and not answered
	claimUnsure  bool // a claim may have been stored, or may yet be
	round        int  // answers to an earlier one come too late
	participants []participant
	room         []Operation // empty; the next operations come here
	err          error
}

// roomFor is the number of participants for which an execution allocates room beforehand:
// most transfers have no more.
const roomFor = 4

// New returns an execution of a transfer with a number of participants.
// The losers are the indexes of those to which a transfer that is committed whole pays
// nothing: they are settled as soon as they are prepared.
// What is no loser gains, or is a document that an effect changes.
func New(start Start, participants int, losers ...int) *Execution {
	x := &Execution{start: start, phase: readingFences, outcome: Running, participants: make([]participant, participants)}
	// Room for Claim, Decide and Finish, and for ReadFence, Prepare, Pay and Clear of
	// each.
	x.room = make([]Operation, 0, 3+4*min(participants, roomFor))
	x.refusal.Participant = NoParticipant
	for i := range x.participants {
		x.participants[i].step = needsFence
	}
	for _, i := range losers {
		x.participants[i].loses = true
	}
	if start.RollBack != 0 || start.Claim == Post {
		x.refusal.Reason = start.RollBack
		x.phase = claiming // it never prepares, so it needs no fences
	}
	return x
}

// Clone returns a copy of the execution that is independent from here on.
func (x *Execution) Clone() *Execution {
	fork := *x
	fork.participants = slices.Clone(x.participants)
	fork.room = nil // both would write there
	return &fork
}

// Outcome returns how the execution ended, or that it is Running.
func (x *Execution) Outcome() Outcome { return x.outcome }

// State returns the transfer's state as far as this execution has changed or learned it.
// Once it is Committed or Rollback the decision is stored.
// A transfer that is committed by fact is Preparing until its record is stored: what a
// caller may be told, [Execution.Progress] says.
func (x *Execution) State() State { return x.state }

// Claimed reports whether the transfer is, or was, this execution's.
func (x *Execution) Claimed() bool { return x.epoch > 0 }

// ClaimInDoubt reports whether a claim was sent that is not known to have changed
// nothing.
// Unless the execution has Claimed since, the transfer may be stored, or may yet be, and
// nobody works on it until recovery takes it over.
func (x *Execution) ClaimInDoubt() bool { return x.claimUnsure }

// Refusal returns why this execution rolls back.
// Its Reason is 0 if that was another execution's decision.
// It counts once State is Rollback or Fail.
func (x *Execution) Refusal() Refusal { return x.refusal }

// StuckAt returns the first participant that can't be settled or undone, NoParticipant if
// it is the transfer itself.
func (x *Execution) StuckAt() int {
	return slices.IndexFunc(x.participants, func(p participant) bool { return p.step == stuck })
}

// Err returns what the execution has seen in the database and can't make sense of, once
// it is Stuck because of that.
func (x *Execution) Err() error { return x.err }

// StopWaiting ends the waiting for a busy participant that [Start] allowed.
func (x *Execution) StopWaiting() { x.start.WaitWhileBusy = false }

// Postpone ends the waiting for another reversal that [Start] allowed.
func (x *Execution) Postpone() { x.start.WaitWhileTaken = false }

// Next returns the operations that the execution wants performed now, none when it has
// ended.
// What was handed out before and not answered counts as Unknown, and an answer to it that
// comes later is ignored.
// It fails on a state it does not know: states come from the database, and a newer
// version may have written one.
//
// The list is the caller's for good: it is never written again.
//
//  1. A prepare hangs.
//  2. The next list is written over the old one, and a settle stands where the prepare
//     stood.
//  3. The prepare's late answer is handed over with what stands there, and counts as the
//     settle's.
func (x *Execution) Next() ([]Operation, error) {
	x.countUnanswered()
	x.advance()
	operations, err := x.next(x.room)
	x.round++
	for i := range operations {
		operations[i].round = x.round
	}
	x.room = operations[len(operations):]
	return slices.Clip(operations), err
}

// next adds the operations to an empty list.
func (x *Execution) next(operations []Operation) ([]Operation, error) {
	if x.err != nil {
		return nil, x.err
	}
	if x.mustLook && x.phase != settling {
		return append(operations, about(LookTransfer)), nil
	}
	return x.wanted(operations)
}

// wanted adds the operations of the present phase.
func (x *Execution) wanted(operations []Operation) ([]Operation, error) {
	switch x.phase {
	case readingFences:
		return x.each(operations, needsFence, ReadFence), nil
	case claiming:
		x.claimSent = true
		op := about(Claim)
		op.Claim = x.start.Claim
		if op.Claim == CancelInitiated {
			op.Refusal = x.refusal
		}
		return append(operations, op), nil
	case checkingClaim, checkingFinish:
		return append(operations, about(ReadTransfer)), nil
	case preparing:
		return x.preparations(operations), nil
	case holding:
		op := about(MarkHeld)
		op.Epoch, op.Clean = x.epoch, !x.dirty
		return append(operations, op), nil
	case deciding:
		return append(operations, x.decide()), nil
	case settling:
		return x.settlements(operations), nil
	case fencing:
		return x.fencings(operations), nil
	case clearing:
		return x.clearances(operations), nil
	case finishing:
		op := about(Finish)
		op.To = x.finalState()
		return append(operations, op), nil
	case ended:
		return nil, nil
	}
	return nil, fmt.Errorf("unknown phase %d", x.phase)
}

// Observe takes the answer to an operation that the latest Next has returned.
func (x *Execution) Observe(op Operation, answer Answer) {
	if op.round != x.round {
		return
	}
	switch op.Kind {
	case ReadFence:
		x.observeFence(op, answer)
	case Claim:
		x.observeClaim(answer)
	case ReadTransfer:
		x.observeRead(answer)
	case LookTransfer:
		x.observeLookTransfer(answer)
	case Verify:
		x.observeVerify(answer)
	case Prepare:
		x.observePrepare(op, answer)
	case Look:
		x.observeLook(op, answer)
	case MarkHeld:
		x.observeMarkHeld(answer)
	case Decide:
		x.observeDecide(answer)
	case Pay:
		x.observePay(op, answer)
	case Settle, Clear, Undo, FenceOnly:
		x.observeFencing(op, answer)
		x.observeClear(op, answer)
	case Finish:
		x.observeFinish(answer)
	}
}

// advance moves to the next phase once all of the present one is done.
func (x *Execution) advance() {
	switch x.phase {
	case readingFences:
		if !x.any(needsFence) {
			x.phase = claiming
		}
	case preparing:
		x.concludePreparing()
	case fencing:
		x.concludeFencing()
	case settling:
		x.concludeSettling()
	case clearing:
		x.concludeClearing()
	case claiming, checkingClaim, holding, deciding, finishing, checkingFinish, ended:
	}
}

// observeClaim enters the transfer in the state that the after-image shows, not in the
// one in which it was found.
// Another executor may have decided between a look and the claim.
func (x *Execution) observeClaim(answer Answer) {
	x.claimSent = false
	switch answer.Result {
	case Applied:
		x.enter(answer.Transfer)
	case NotMatched:
		// One that was not answered may have matched, and a majority may not have it yet.
		x.phase, x.mustLook, x.claimUnsure = checkingClaim, x.claimUnsure, true
	case Failed:
		x.end(Unclaimable)
	case Unknown:
		x.claimUnsure = true // and asked again: the owner's nonce shows whose it was
	case NotSent:
	}
}

// observeRead judges what a majority has stored, after a claim or a finish that did not
// match.
// That may be old, but the two things believed of it don't change: who owns an epoch, and
// a final state.
func (x *Execution) observeRead(answer Answer) {
	if answer.Result != Applied {
		return
	}
	if x.phase == checkingFinish {
		x.checkFinish(answer.Transfer)
		return
	}
	x.checkClaim(answer.Transfer)
}

// checkClaim judges a claim that did not match.
func (x *Execution) checkClaim(image Image) {
	switch {
	case image.Found && image.Mine:
		x.enter(image)
	case !image.Found && x.start.Claim == Insert:
		// The document that was in the way can't be seen yet, or is no longer there.
		x.phase = claiming
	default:
		x.end(NotClaimed)
	}
}

// enter starts the work on a claimed transfer.
func (x *Execution) enter(image Image) {
	x.epoch, x.state = image.Epoch, image.State
	x.dirty = x.start.Claim.takesOver() || image.Epoch > 1
	if image.State != Preparing && !x.start.Claim.decides() {
		x.dirty, x.refusal = true, Refusal{Participant: NoParticipant} // the decision is another's
	}
	if image.Held {
		x.takeHeld(image)
	}
	switch image.State {
	case Preparing:
		x.phase = preparing
	case Committed:
		x.supposePaid()
		x.startClearing()
	case Rollback:
		x.startClearing()
	case Success, Fail:
		x.end(Finished)
	case Initiated:
		x.fail(fmt.Errorf("claimed, and still %s", image.State))
	default:
		x.fail(fmt.Errorf("unknown transfer state %q", image.State))
	}
}

// takeHeld starts from a hold that is held: everything is prepared, and a takeover
// prepares nothing.
// If no prepare can be on its way, it needs no new fence either.
func (x *Execution) takeHeld(image Image) {
	for i := range x.participants {
		x.participants[i].step = prepared
	}
	if image.Clean && (image.State == Preparing || x.start.Claim == Post) {
		x.dirty = false
	}
}

// observeLookTransfer learns from a deciding read whether the transfer is still this
// execution's.
// It also learns whether a decision is stored that was answered with "not matched", or
// not at all.
// "Not matched" alone says nothing: an earlier message of this very execution may have
// been the one that matched.
func (x *Execution) observeLookTransfer(answer Answer) {
	if answer.Result != Applied {
		return
	}
	x.mustLook = false
	image := answer.Transfer
	switch {
	case x.phase == checkingClaim:
		x.checkClaim(image)
	case !image.Found:
		x.end(Gone)
	case x.phase == finishing && image.State == x.finalState():
		x.state = image.State
		x.end(Finished)
	case !image.State.Known():
		x.fail(fmt.Errorf("unknown transfer state %q", image.State))
	case !image.Mine || image.Epoch != x.epoch:
		x.end(Overtaken)
	case x.phase == holding && image.Held:
		x.end(Held)
	case image.State == x.state:
		// Nothing has changed: what was asked for is asked for again.
	case image.State == x.decision && (x.phase == deciding || x.phase == settling):
		x.decided()
	default:
		x.end(Overtaken)
	}
}

func (x *Execution) observeMarkHeld(answer Answer) {
	switch answer.Result {
	case Applied:
		x.end(Held)
	case NotMatched, Unknown:
		x.mustLook = true
	case Failed:
		x.end(Stuck)
	case NotSent:
	}
}

// decide asks for the decision.
// The decision is drawn up once; each repeat says the same.
func (x *Execution) decide() Operation {
	op := about(Decide)
	op.Epoch, op.To, op.Clean = x.epoch, x.decision, !x.dirty
	if x.decision == Rollback {
		op.Refusal = x.refusal
	}
	return op
}

func (x *Execution) observeDecide(answer Answer) {
	if x.phase != deciding && x.phase != settling {
		return
	}
	switch answer.Result {
	case Applied:
		x.decided()
	case NotMatched, Unknown:
		x.mustLook = true
	case Failed:
		x.end(Stuck)
	case NotSent:
	}
}

// decided goes on from a decision that is stored.
// While pays are still out, they come first.
func (x *Execution) decided() {
	x.state = x.decision
	if x.phase == deciding {
		x.startClearing()
	}
}

func (x *Execution) observeFinish(answer Answer) {
	switch answer.Result {
	case Applied:
		x.state = x.finalState()
		x.end(Finished)
	case NotMatched:
		x.phase = checkingFinish
	case Failed:
		x.end(Stuck)
	case Unknown, NotSent:
	}
}

// checkFinish judges a finish that did not match.
// Anybody may finish what is settled everywhere, so the epoch doesn't matter.
func (x *Execution) checkFinish(image Image) {
	switch {
	case image.State == x.finalState():
		x.state = image.State
		x.end(Finished)
	case image.Found && (image.State.Final() || !image.State.Known()):
		x.fail(fmt.Errorf("the transfer was %s and is now %q", x.state, image.State))
	default:
		x.phase, x.mustLook = finishing, !image.Found
	}
}

func (x *Execution) finalState() State {
	if x.state == Committed {
		return Success
	}
	return Fail
}

func (x *Execution) end(outcome Outcome) { x.phase, x.outcome = ended, outcome }

// fail ends the execution with an error that Next returns.
func (x *Execution) fail(err error) {
	x.err = err
	x.end(Stuck)
}

// about returns an operation that concerns the transfer.
func about(kind Kind) Operation { return Operation{Kind: kind, Participant: NoParticipant} }
