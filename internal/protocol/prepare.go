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
	if reason != 0 || facts.Trace.there() {
		p.step = needsLook // a prepare would hardly match
	}
}

// preparations adds what is next while preparing.
// Looks come first, since what they show may make prepares needless.
func (x *Execution) preparations(operations []Operation) []Operation {
	if x.any(needsLook) {
		return x.each(operations, needsLook, Look)
	}
	if x.any(needsVerify) {
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
		p.look(answer.Facts)
	case p.step == needsFencingLook && x.phase == fencing:
		p.lookFencing(answer.Facts)
	case p.step == needsPayLook && x.phase == settling:
		p.lookPaid(answer.Facts)
	case p.step == needsClearingLook && x.phase == clearing:
		x.lookClearing(p, answer.Facts)
	}
}

// look decides how to go on with a participant whose prepare did not match.
func (p *participant) look(facts Facts) {
	p.absent = !facts.Found
	if facts.Trace.there() {
		p.hasTrace(facts.Trace)
		return
	}
	if reason := facts.Refusal(); reason != 0 {
		p.refuse(reason)
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
			if p := &x.participants[i]; p.step == needsVerify {
				p.step = needsPrepare
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
	if x.any(refused) && !x.any(needsLook) && !x.lookOnceMore() {
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

// lookOnceMore has the transfer that a refused reversal reverses looked at after the
// accounts.
//
//  1. A sees that it is free.
//  2. B reserves it, and takes the money.
//  3. A sees no money, and would report that it was spent on something else.
func (x *Execution) lookOnceMore() bool {
	last := &x.participants[len(x.participants)-1]
	if !x.start.Reversal || x.lookedLast || last.step == prepared || last.step == refused {
		return false
	}
	x.lookedLast, last.step = true, needsLook
	return true
}

// firstRefusal returns the refusal that is reported.
func (x *Execution) firstRefusal() Refusal {
	if last := len(x.participants) - 1; x.start.Reversal && x.participants[last].step == refused {
		return Refusal{Reason: x.participants[last].reason, Participant: last}
	}
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
