package protocol

// rollBack begins to roll back.
// From here on this execution prepares nothing any more.
//
// The execution that has claimed at epoch 1 stores the decision at once.
// That decision requires epoch 1, so nobody else can have come to know the fact.
// A later one can't know what an earlier one has reported:
//
//  1. A prepares everything, reports the commit to its caller, and is paused.
//  2. B takes over to cancel the transfer, and stores Rollback.
//
// So it first makes sure that the fact does not stand, and never will: after its own
// claim it sets a new fence at one participant that holds no trace.
// The transfer can get there only by a prepare that knows this fence.
// That is B's own, which sends none; or one of a later epoch, and then B's decision does
// not match; or one of an earlier epoch, which has to verify its claim after it has read
// the fence, and fails.
//
// A transfer that is never committed by fact needs none of this.
func (x *Execution) rollBack(refusal Refusal) {
	x.refusal = refusal
	if x.epoch == 1 || !x.byFact() {
		x.decideRollBack()
		return
	}
	x.phase = fencing
	for i := range x.participants {
		switch p := &x.participants[i]; {
		case p.step == refused && p.absent:
			p.step = missing
		case p.step != prepared:
			p.step = needsFenceOnly
		}
	}
	x.concludeFencing()
}

func (x *Execution) decideRollBack() { x.decision, x.phase = Rollback, deciding }

// fencings adds what is next before a roll-back of a later epoch.
func (x *Execution) fencings(operations []Operation) []Operation {
	operations = x.each(operations, needsFenceOnly, FenceOnly)
	return x.concludingLooks(operations, needsFencingLook)
}

// observeFencing believes only what matched.
//
//  1. B reads that bob has no marker. A's credit arrives: the fact stands, and A
//     reports it.
//  2. B goes by what it has read, and rolls back.
//
// A fence-only that was not answered is sent again, with another token.
func (x *Execution) observeFencing(op Operation, answer Answer) {
	p := &x.participants[op.Participant]
	if x.phase != fencing || p.step != needsFenceOnly {
		return
	}
	switch answer.Result {
	case Applied:
		p.step = fenced
	case NotMatched:
		p.step = needsFencingLook
	case Failed:
		p.step = stuck
	case Unknown, NotSent:
	}
}

// lookFencing judges a deciding read after a fence-only that did not match.
// A document that was not there after the claim is as good as a fence: nobody has
// prepared it, and whoever learns its fence later has to verify its claim.
// Without that, what names a missing account would never end.
func (p *participant) lookFencing(facts Facts) {
	switch {
	case !facts.Found:
		p.step = missing
	case facts.Trace.there():
		p.hasTrace(facts.Trace)
	default:
		p.step = needsFenceOnly // the answer was stale, or nothing can be read there
	}
}

// concludeFencing rolls back once one participant is fenced off.
// If every participant holds a trace, the fact stands, and the execution goes forward,
// whatever it was meant to do.
func (x *Execution) concludeFencing() {
	switch {
	case x.any(fenced), x.any(missing):
		x.decideRollBack()
	case x.any(needsFenceOnly), x.any(needsFencingLook):
	case x.any(stuck):
		x.end(Stuck)
	default:
		x.concludeFact()
	}
}
