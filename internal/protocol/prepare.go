package protocol

import (
	"slices"
)

// step is where one participant stands.
type step uint8

const (
	needsFence   step = iota + 1
	needsPrepare      // its fence is pinned, or verified
	needsLook         // a prepare may not have matched, or a read refuses it
	needsVerify       // its fence is newer than the claim
	needsTurn         // another reversal has it, and it is looked at again after a verify
	needsOwner        // a trace was seen at an original, and counts after a verify
	prepared
	refused
	needsFencingLook // the fence-only before a roll-back did not match
	fenced           // that one matched
	missing          // since the claim, a deciding read has found no document
	needsPay
	needsPayLook      // a pay did not match
	paid              // or there is nothing to be paid in
	needsClearing     // settle, clear or undo, as the transfer's state and the trace say
	needsFenceOnly    // no trace, but a prepare may be on its way
	needsClearingLook // settle, clear, undo or fence-only did not match
	cleared
	stuck
)

type participant struct {
	step   step
	fence  Fence
	pinned bool // fence was seen, on a document that exists
	sent   bool // a prepare was handed out and not answered
	looked bool // a deciding read has shown no reason to refuse
	absent bool // the latest deciding read has found no document
	loses  bool // nothing is ever paid in
	done   bool // its done mark was set or seen, or is supposed to be there
	gained bool // what is due to it is there, for good once the record is
	reason Reason
}

// observeFence pins the fence for this execution.
// This happens before the claim, and that is a guard:
//
//  1. A claims and stalls.
//  2. B takes over, rolls back, replaces the fence, finishes.
//  3. A wakes, reads the new fence and prepares with it: the debit lands on a transfer
//     that has failed.
//
// A fence pinned before the claim is older than any takeover, so every takeover replaces
// it.
func (x *Execution) observeFence(op Operation, answer Answer) {
	p := &x.participants[op.Participant]
	if p.step != needsFence || answer.Result != Applied {
		return
	}
	facts := answer.Facts
	reason := facts.Refusal()
	if reason == Busy && x.start.WaitWhileBusy && !facts.Trace.there() {
		return
	}
	p.fence, p.pinned = facts.Fence, facts.Found
	p.step = needsPrepare
	if reason != 0 || facts.Trace.there() || facts.postpones() {
		p.step = needsLook // a prepare would hardly match
	}
}

// preparations adds what is next while preparing.
// Looks come first, since what they show may make prepares needless.
func (x *Execution) preparations(operations []Operation) []Operation {
	if looks := x.inTurn(x.each(operations, needsLook, Look)); len(looks) > 0 {
		return looks
	}
	if x.any(needsVerify) || x.any(needsTurn) || x.any(needsOwner) {
		op := about(Verify)
		op.Epoch = x.epoch
		return append(operations, op)
	}
	operations = x.each(operations, needsPrepare, Prepare)
	if x.reserving() {
		operations = slices.DeleteFunc(operations, func(op Operation) bool { return op.Participant < x.firstReserved() })
	}
	for i, op := range operations {
		p := &x.participants[op.Participant]
		operations[i].Fence = p.fence
		p.sent = true
	}
	return operations
}

// firstReserved returns the first participant that is prepared before the others.
func (x *Execution) firstReserved() int { return len(x.participants) - x.start.Reserve }

// reserving reports whether one of those is not prepared yet.
func (x *Execution) reserving() bool {
	return slices.ContainsFunc(x.participants[x.firstReserved():], func(p participant) bool { return p.step != prepared })
}

// original returns the transfer that a reversal reverses.
func (x *Execution) original() *participant { return &x.participants[len(x.participants)-1] }

// takingTurn reports whether the execution is that of a reversal which has not reserved
// its original yet.
func (x *Execution) takingTurn() bool { return x.start.Reversal && x.original().step != prepared }

// inTurn leaves out looks that come after a reversal has reserved its original.
func (x *Execution) inTurn(operations []Operation) []Operation {
	if !x.takingTurn() {
		return operations
	}
	last := len(x.participants) - 1
	return slices.DeleteFunc(operations, func(op Operation) bool { return op.Participant < last })
}

func (x *Execution) observePrepare(op Operation, answer Answer) {
	p := &x.participants[op.Participant]
	if x.phase != preparing || p.step != needsPrepare {
		return
	}
	p.sent = false
	switch answer.Result {
	case Applied:
		p.step = prepared
	case NotMatched:
		p.step = needsLook
	case Failed:
		p.refuse(Unwritable)
	case Unknown:
		x.dirty, p.step = true, needsLook
	case NotSent:
	}
}

// countUnanswered treats a claim and prepares that were handed out and never answered as
// ambiguous.
func (x *Execution) countUnanswered() {
	if x.claimSent {
		x.claimSent, x.claimUnsure = false, true
	}
	for i := range x.participants {
		if p := &x.participants[i]; p.sent {
			p.sent, x.dirty = false, true
			p.step = needsLook
		}
	}
}

// observeLook judges a deciding read of a participant.
func (x *Execution) observeLook(op Operation, answer Answer) {
	if answer.Result != Applied {
		return
	}
	p := &x.participants[op.Participant]
	switch {
	case p.step == needsLook && x.phase == preparing:
		x.look(p, answer.Facts)
	case p.step == needsFencingLook && x.phase == fencing:
		p.lookFencing(answer.Facts)
	case p.step == needsPayLook && x.phase == settling:
		p.lookPaid(answer.Facts)
	case p.step == needsClearingLook && x.phase == clearing:
		x.lookClearing(p, answer.Facts)
	}
}

// look decides how to go on with a participant whose prepare did not match.
//
// A trace at the original of a reversal may stand for another plan:
//
//  1. A is to take back 60, and its prepare of the original doesn't match.
//  2. B takes over, finds that 40 are left, plans that, and reserves the original.
//  3. A sees the marker, and goes on to prepare 60 elsewhere.
//
// So it counts once the claim is verified: as long as that holds, nobody plans anew.
func (x *Execution) look(p *participant, facts Facts) {
	p.absent = !facts.Found
	if facts.Trace.there() {
		p.hasTrace(facts.Trace)
		if x.start.Reversal && p == x.original() {
			p.step = needsOwner
		}
		return
	}
	if reason := facts.Refusal(); reason != 0 {
		p.refuse(reason)
		return
	}
	if facts.postpones() {
		x.postpone(p, facts)
		return
	}
	p.looked = true
	if p.pinned && facts.Fence == p.fence {
		p.step = needsPrepare
		return
	}
	p.fence, p.pinned = facts.Fence, true
	p.step = needsVerify
}

// postpone decides how to go on with a reversal whose turn has not come, or which takes
// more than is left.
//
// Nothing of it is prepared anywhere, because the original comes first.
// Nor can a prepare of the original that was sent before come to match: it names a fence,
// which for an original stands for the latest reversal as well, and what is left changes
// only with that.
//
// One that waits verifies its claim each time: it is alive, and nobody else's.
func (x *Execution) postpone(p *participant, facts Facts) {
	switch {
	case facts.Taken && x.start.WaitWhileTaken:
		p.step = needsTurn
	case facts.Taken:
		x.end(Postponed)
	default:
		x.end(Outdated)
	}
}

// hasTrace notes that a participant is prepared: by an earlier message, or by an earlier
// execution, which may have paid it, too.
//
// For this a read may be as old as it likes.
// A trace goes away only after the decision is stored, and then no decision of another
// kind can be.
func (p *participant) hasTrace(trace Trace) {
	p.step, p.done = prepared, trace == Done
}

func (p *participant) refuse(reason Reason) { p.step, p.reason = refused, reason }

// observeVerify allows the use of fences that were read after the claim.
// Only "matched" shows that no other executor had taken over when they were read.
// Then any later takeover replaces them.
// The order matters, or this could happen:
//
//  1. A verifies.
//  2. B takes over, rolls back and replaces the fence.
//  3. A reads the new fence and prepares with it.
func (x *Execution) observeVerify(answer Answer) {
	if x.phase != preparing {
		return
	}
	switch answer.Result {
	case Applied:
		for i := range x.participants {
			switch p := &x.participants[i]; p.step {
			case needsVerify:
				p.step = needsPrepare
			case needsTurn:
				p.step = needsLook
			case needsOwner:
				p.step = prepared
			default:
			}
		}
	case NotMatched:
		x.mustLook = true
	case Failed:
		x.end(Stuck)
	case Unknown, NotSent:
	}
}

// concludePreparing draws up the decision once it is clear.
// Nobody learns of it until it is stored: an execution that was refused money may have
// been overtaken by one that found some.
func (x *Execution) concludePreparing() {
	if x.start.RollBack != 0 {
		x.rollBack(Refusal{Reason: x.start.RollBack, Participant: NoParticipant})
		return
	}
	if x.all(prepared) {
		x.concludeAllPrepared()
		return
	}
	if x.takingTurn() {
		if last := len(x.participants) - 1; x.original().step == refused {
			x.rollBack(Refusal{Reason: x.original().reason, Participant: last})
		}
		return
	}
	// If several participants refuse, the first reason in order is reported.
	// So once one of them is looked at, or has refused, all that are not prepared are
	// looked at.
	if x.any(needsLook) || x.any(refused) {
		for i := range x.participants {
			if p := &x.participants[i]; p.step == needsPrepare && !p.looked {
				p.step = needsLook
			}
		}
	}
	if x.any(refused) && !x.any(needsLook) {
		x.rollBack(x.firstRefusal())
	}
}

// concludeAllPrepared goes on from a transfer that is prepared everywhere.
func (x *Execution) concludeAllPrepared() {
	switch {
	case x.start.Hold:
		x.phase = holding
	case x.byFact():
		x.concludeFact()
	default:
		x.decision, x.phase = Committed, deciding
	}
}

// firstRefusal returns the refusal that is reported.
func (x *Execution) firstRefusal() Refusal {
	first := Refusal{Participant: NoParticipant}
	for i, p := range x.participants {
		if p.step == refused && (first.Reason == 0 || p.reason < first.Reason) {
			first = Refusal{Reason: p.reason, Participant: i}
		}
	}
	return first
}

func (x *Execution) any(s step) bool {
	for i := range x.participants {
		if x.participants[i].step == s {
			return true
		}
	}
	return false
}

func (x *Execution) all(s step) bool {
	for i := range x.participants {
		if x.participants[i].step != s {
			return false
		}
	}
	return true
}

// each adds one operation of a kind for every participant that is at a step.
func (x *Execution) each(operations []Operation, s step, kind Kind) []Operation {
	for i := range x.participants {
		if x.participants[i].step == s {
			operations = append(operations, Operation{Kind: kind, Participant: i})
		}
	}
	return operations
}

// concludingLooks is each for looks from which a missing trace is concluded.
func (x *Execution) concludingLooks(operations []Operation, s step) []Operation {
	n := len(operations)
	operations = x.each(operations, s, Look)
	for i := range operations[n:] {
		operations[n+i].Concluding = true
	}
	return operations
}
