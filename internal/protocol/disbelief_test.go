package protocol

// answerMutants believe what must not be believed.
func answerMutants() []*mutant {
	stale := func(w *world, m message) Answer {
		if state := w.transfers[m.transfer].state; state == Committed || state == Rollback {
			return w.read(&w.past[0], m)
		}
		return w.perform(m)
	}
	report := func(from, to Result, kinds ...Kind) func(*world, message, fate, Answer) Answer {
		return func(_ *world, m message, _ fate, answer Answer) Answer {
			for _, kind := range kinds {
				if m.op.Kind == kind && answer.Result == from {
					answer.Result = to
				}
			}
			return answer
		}
	}
	return []*mutant{
		{name: "a look shows what was", kind: Look, perform: stale},
		{name: "a look at the transfer shows what was", kind: LookTransfer, perform: stale},
		{name: "an unanswered prepare counts as not matched", hear: report(Unknown, NotMatched, Prepare)},
		{name: "an unanswered prepare counts as never sent", hear: report(Unknown, NotSent, Prepare)},
		{name: "an unanswered prepare counts as failed", hear: report(Unknown, Failed, Prepare)},
		{name: "a prepare that did not match counts as done", hear: report(NotMatched, Applied, Prepare)},
		{name: "an unanswered decision counts as stored", hear: report(Unknown, Applied, Decide)},
		{name: "a decision that did not match counts as stored", hear: report(NotMatched, Applied, Decide)},
		{name: "a settle that did not match counts as done", hear: report(NotMatched, Applied, Settle)},
		{name: "a settle that was never sent counts as done", hear: report(NotSent, Applied, Settle)},
		{name: "an unanswered undo counts as done", hear: report(Unknown, Applied, Undo)},
		{name: "an unanswered fence-only counts as done", hear: report(Unknown, Applied, FenceOnly)},
		{name: "an unanswered insert counts as failed", hear: func(_ *world, m message, _ fate, answer Answer) Answer {
			if m.op.Claiming == Insert && answer.Result == Unknown {
				answer.Result = Failed
			}
			return answer
		}},
		{name: "a claim answers with the document before it", hear: func(_ *world, m message, _ fate, answer Answer) Answer {
			if m.op.Claiming == TakeOver && answer.Result == Applied {
				answer.Transfer.State = Preparing
			}
			return answer
		}},
	}
}

// machineMutants forget something themselves.
func machineMutants() []*mutant {
	replace := func(from, to step) func(*Execution) {
		return func(x *Execution) {
			for i := range x.participants {
				if x.participants[i].step == from {
					x.participants[i].step = to
				}
			}
		}
	}
	return []*mutant{
		{name: "no execution is dirty", tamper: func(x *Execution) { x.dirty = false }},
		{name: "a takeover is clean", tamper: func(x *Execution) { x.dirty = x.dirty && !x.start.Claiming.takesOver() }},
		{name: "an own ambiguous prepare is clean", tamper: func(x *Execution) { x.dirty = x.start.Claiming.takesOver() }},
		{name: "no fence-only where the marker is absent", tamper: replace(needsFenceOnly, cleared)},
		{name: "a newer fence is used without a verify", tamper: replace(needsVerify, needsPrepare)},
		{name: "no look after a settle or an undo", tamper: replace(needsClearingLook, cleared)},
		{name: "a prepare that did not match is refused", tamper: replace(needsLook, refused)},
		{name: "a prepare that did not match is prepared", tamper: replace(needsLook, prepared)},
		{name: "no look after a decision", tamper: func(x *Execution) { x.mustLook = false }},
		{name: "an overtaken execution believes in its decision", tamper: func(x *Execution) {
			if x.outcome == Overtaken && x.decision != "" {
				x.outcome = Running
				x.decided()
			}
		}},
		{name: "a refusal is told before it is stored", tamper: func(x *Execution) {
			if x.any(refused) && x.phase == preparing {
				x.state = Rollback
			}
		}},
		{name: "late answers are believed", anyRound: true},
	}
}
