package chaos

import "time"

// doors checks that each door is closed or open as the last clear answer to closing or
// reopening it said.
// It returns how many accounts could be compared.
// An account can be compared only if no other call and no late message can have changed
// it since.
func (a *audit) doors(entries []entry, late map[string]time.Time) int {
	judged := 0
	for id, e := range undisturbed(entries, entry.movesDoor) {
		if !late[id].Add(drainTime).Before(e.Began) {
			continue
		}
		judged++
		closed := e.Verb == verbClose && e.Word == done
		if account := a.accounts[id]; account.Closed != closed {
			a.wrong("door "+id, account, "the last call on account %s, %s to %s, was told %q, and nothing came after it", id, e.Call, e.Verb, e.Word)
		}
	}
	return judged
}

// frozen checks the same of freezing and unfreezing.
// A late message is no excuse: it names a fence from before the last call.
func (a *audit) frozen(entries []entry) int {
	last := undisturbed(entries, entry.movesIce)
	for id, e := range last {
		if account := a.accounts[id]; account.Frozen != (e.Verb == verbFreeze) {
			a.wrong("ice "+id, account, "the last call on account %s, %s to %s, was told %q, and no other call was beside it or after it",
				id, e.Call, e.Verb, e.Word)
		}
	}
	return len(last)
}

// undisturbed returns the last call with a clear answer among those that move something,
// by account, where no other one can have moved it since.
func undisturbed(entries []entry, moves func(entry) bool) map[string]entry {
	last := map[string]entry{}
	for _, e := range entries {
		if moves(e) && e.clear() && e.Began.After(last[e.ID].Began) {
			last[e.ID] = e
		}
	}
	for _, e := range entries {
		end := e.Ended
		if !e.clear() {
			end = end.Add(drainTime) // The server may still be performing it.
		}
		if l, is := last[e.ID]; is && moves(e) && e.Call != l.Call && !end.Before(l.Began) {
			delete(last, e.ID)
		}
	}
	return last
}

// movesDoor reports whether a call may have closed or reopened an account.
func (e entry) movesDoor() bool {
	return (e.Verb == verbClose || e.Verb == verbReopen) && e.Word != unwritten
}

// movesIce reports whether a call may have frozen or unfrozen an account.
func (e entry) movesIce() bool {
	return (e.Verb == verbFreeze || e.Verb == verbUnfreeze) && e.Word != unwritten
}

// clear reports whether an answer says if an account is closed, or frozen.
func (e entry) clear() bool { return e.Word == done || e.Word == keptOpen }
