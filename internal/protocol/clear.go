package protocol

// startClearing begins to settle or undo, as the stored decision says.
//
// A clean execution that rolls back knows where its markers are: each of its prepares was
// answered.
// A dirty one doesn't know that:
//
//  1. A sends a debit, which hangs in the network, and dies.
//  2. B takes over, finds no marker, rolls back and finishes.
//  3. The debit arrives.
//
// So before B finishes it replaces the fence at every participant, with or without a
// marker.
//
// A commit by fact comes here only once its record is stored for good.
//
//  1. A concludes the fact, reports it, and clears everywhere.
//  2. The record was lost: the transfer is Preparing, and no trace shows that it was
//     done.
//  3. B takes over, and moves the money a second time, or rolls back.
func (x *Execution) startClearing() {
	x.phase = clearing
	for i := range x.participants {
		p := &x.participants[i]
		switch {
		case x.state == Committed && p.step == stuck: // what is due was refused there
		case p.step == fenced, x.state == Rollback && !x.dirty && p.step != prepared:
			p.step = cleared
		default:
			p.step = needsClearing
		}
	}
}

// clearances adds what is next while settling or undoing.
func (x *Execution) clearances(operations []Operation) []Operation {
	operations = x.each(operations, needsClearing, Undo)
	for i := range operations {
		op := &operations[i]
		if x.state == Committed {
			op.Kind = x.participants[op.Participant].clearedBy()
		}
		op.ReplaceFence = x.dirty
	}
	operations = x.each(operations, needsFenceOnly, FenceOnly)
	return x.concludingLooks(operations, needsClearingLook)
}

// clearedBy returns what removes the trace of a committed transfer.
// What is still reserved is settled by the same write.
//
//  1. A concludes the fact, stores the record, and dies; its pay hangs.
//  2. B takes over, and takes the marker for a done mark: it removes it.
//  3. Bob never gets the money.
func (p *participant) clearedBy() Kind {
	if p.done {
		return Clear
	}
	return Settle
}

func (x *Execution) observeClear(op Operation, answer Answer) {
	p := &x.participants[op.Participant]
	if x.phase != clearing || (p.step != needsClearing && p.step != needsFenceOnly) {
		return
	}
	switch answer.Result {
	case Applied:
		p.step = cleared
	case NotMatched:
		p.step = needsClearingLook
		if op.Kind == Undo && x.dirty {
			p.step = needsFenceOnly
		}
	case Failed:
		p.step = stuck
	case Unknown, NotSent:
		// It is asked for again.
		// Settle, Clear and Undo need the trace, which they remove, so they can apply
		// only once.
	}
}

// lookClearing judges a deciding read after a settle, clear, undo or fence-only that did
// not match.
func (x *Execution) lookClearing(p *participant, facts Facts) {
	switch {
	case facts.Trace == Done && x.state == Rollback:
		p.step = stuck // nobody pays for a transfer that is rolled back: this was no protocol
	case facts.Trace != NoTrace:
		// It has just landed, or the answer was stale, or another trace was supposed.
		p.step = needsClearing
		if facts.Trace.there() {
			p.done = facts.Trace == Done
		}
	case !facts.Found && x.state == Committed && !facts.MayBeGone:
		p.step = stuck // money is owed to a document that is gone
	case facts.Found && x.state == Rollback && x.dirty:
		p.step = needsFenceOnly
	default:
		p.step = cleared // by another executor; or nothing is left to undo
	}
}

// concludeClearing goes on to finish once all participants are done.
// If one is stuck, the others are settled or undone all the same.
func (x *Execution) concludeClearing() {
	switch {
	case x.any(needsClearing), x.any(needsFenceOnly), x.any(needsClearingLook):
	case x.any(stuck):
		x.end(Stuck)
	default:
		x.phase = finishing
	}
}
