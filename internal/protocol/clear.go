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
func (x *Execution) startClearing() {
	x.phase = clearing
	for i := range x.participants {
		p := &x.participants[i]
		if x.state == Rollback && !x.dirty && p.step != prepared {
			p.step = cleared
			continue
		}
		p.step = needsClearing
	}
}

// clearances adds what is next while settling or undoing.
func (x *Execution) clearances(operations []Operation) []Operation {
	kind := Undo
	if x.state == Committed {
		kind = Settle
	}
	operations = x.each(operations, needsClearing, kind)
	for i := range operations {
		operations[i].ReplaceFence = x.dirty
	}
	operations = x.each(operations, needsFenceOnly, FenceOnly)
	return x.each(operations, needsClearingLook, Look)
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
		// Settle and Undo need the marker, which they remove, so they can apply only
		// once.
	}
}

// lookClearing judges a deciding read after a settle, undo or fence-only that did not
// match.
func (x *Execution) lookClearing(p *participant, facts Facts) {
	switch {
	case facts.Found && facts.Marker:
		p.step = needsClearing // it has just landed, or the answer was stale
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
