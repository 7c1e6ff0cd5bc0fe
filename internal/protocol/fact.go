package protocol

import "slices"

// Progress is how far a transfer has come, by what its caller may be told for good.
// Operations that are asked for after what a caller waits for is reached are nobody's
// wait: they may go out a little later, together with others.
type Progress uint8

const (
	// Undecided means that the transfer may be committed and may be rolled back.
	Undecided Progress = iota
	// Decided means that it is committed, by fact or by record, or rolled back, by
	// record.
	// State says which: a transfer that is rolled back is in Rollback or Fail.
	Decided
	// Settled means that everybody who gains has the money and every effect is set, or
	// that everything is undone; and that the decision is stored.
	// So each read of an account, of the transfer, or of both shows it.
	Settled
	// Complete means that the transfer is final, and that no trace of it is left.
	Complete
)

// String names the progress, for logs.
func (p Progress) String() string {
	switch p {
	case Undecided:
		return "Undecided"
	case Decided:
		return "Decided"
	case Settled:
		return "Settled"
	case Complete:
		return "Complete"
	}
	return ""
}

// Progress returns how far the transfer has come, as far as this execution knows.
// It never goes back.
// An execution that ends in another way than Finished may have reported a commit before:
// that stays true, and whoever has the transfer then goes on with it.
func (x *Execution) Progress() Progress {
	switch {
	case x.state.Final():
		return Complete
	case x.state != Committed && x.state != Rollback:
		if x.fact {
			return Decided
		}
		return Undecided
	case slices.ContainsFunc(x.participants, func(p participant) bool { return p.step != cleared && !x.hasGained(&p) }):
		return Decided
	}
	return Settled
}

// hasGained reports whether a participant has all that a commit by fact pays there.
func (x *Execution) hasGained(p *participant) bool {
	return x.state == Committed && x.byFact() && (p.gained || p.loses)
}

// byFact reports whether the transfer is committed by the fact that every participant
// holds a trace of it, so that the decision that is stored is only the record of that.
//
// A hold is not: everything is prepared, and still it may be voided.
func (x *Execution) byFact() bool {
	return !x.start.Hold && !x.start.Reversal && !x.start.ByRecord
}

// concludeFact goes on from the fact: every participant holds a trace.
// From now on nobody can roll the transfer back, and the caller may be told.
// Three things make that certain.
//
// The claim is this execution's own: whoever takes over and wants to roll back sets a
// fence first, and finds no participant without a trace.
// One who merely asks for the same transfer, and sees all traces, knows nothing:
//
//  1. A, at epoch 1, prepares alice; its credit to bob hangs.
//  2. B has asked for the same transfer, and sees alice's marker.
//  3. A is refused, and stores Rollback: at epoch 1 it needs no fence first.
//  4. The credit arrives. B sees bob's marker, and reports a commit.
//
// This execution has never sent a decision to roll back: that may arrive yet.
//
// It knows of every participant that it holds a trace.
// A participant without one can be fenced off, which allows a roll-back.
func (x *Execution) concludeFact() {
	x.fact, x.decision, x.phase = true, Committed, settling
	x.refusal = Refusal{Participant: NoParticipant}
	for i := range x.participants {
		p := &x.participants[i]
		p.step = needsPay
		if p.loses || p.done {
			p.havePaid()
		}
	}
}

// havePaid notes that nothing is left to be paid in.
func (p *participant) havePaid() { p.step, p.done, p.gained = paid, !p.loses, true }

// settlements adds what is next once the fact stands: the pays, and beside them the
// record.
// Neither needs the other.
// A pay removes no trace, so it needs no fence: one that comes late, or from an execution
// that was overtaken, finds the done mark or nothing.
func (x *Execution) settlements(operations []Operation) []Operation {
	operations = x.each(operations, needsPay, Pay)
	operations = x.concludingLooks(operations, needsPayLook)
	switch {
	case x.mustLook:
		return append(operations, about(LookTransfer))
	case x.state != Committed:
		return append(operations, x.decide())
	}
	return operations
}

func (x *Execution) observePay(op Operation, answer Answer) {
	p := &x.participants[op.Participant]
	if x.phase != settling || p.step != needsPay {
		return
	}
	switch answer.Result {
	case Applied:
		p.havePaid()
	case NotMatched:
		p.step = needsPayLook
	case Failed:
		p.step = stuck
	case Unknown, NotSent:
		// It is asked for again.
		// A pay needs the marker, which it changes, so it can apply only once.
	}
}

// lookPaid judges a deciding read after a pay that did not match.
func (p *participant) lookPaid(facts Facts) {
	switch {
	case facts.Trace == Reserved, facts.Trace == Illegible:
		p.step = needsPay // the answer was stale, or nothing can be read there
	case !facts.Found:
		p.step = stuck // money is owed to a document that is gone
	default:
		p.havePaid() // by another executor, which may have cleared it already
	}
}

// concludeSettling goes on to clear once everything is paid and the record is stored.
// If one participant is stuck, the others are cleared all the same.
func (x *Execution) concludeSettling() {
	if x.state == Committed && !x.any(needsPay) && !x.any(needsPayLook) {
		x.startClearing()
	}
}

// supposePaid supposes that those who gain are paid already.
// The record of a commit by fact goes out beside the pays.
// What was supposed wrongly costs a look.
func (x *Execution) supposePaid() {
	for i := range x.participants {
		p := &x.participants[i]
		p.done = x.byFact() && !p.loses
	}
}
