package chaos

import "time"

// doors checks that each door is closed or open as the last clear answer to closing or
// reopening it said.
// It returns how many accounts could be compared.
// An account can be compared only if no other call and no late message can have changed
// it since.
func (a *audit) doors(entries []entry, late map[string]time.Time) int {
	last := map[string]entry{}
	for _, e := range entries {
		if e.movesDoor() && e.clear() && e.Began.After(last[e.ID].Began) {
			last[e.ID] = e
		}
	}
	disturbed := map[string]bool{}
	for _, e := range entries {
		end := e.Ended
		if !e.clear() {
			end = end.Add(drainTime) // The server may still be performing it.
		}
		if e.movesDoor() && e.Call != last[e.ID].Call && !end.Before(last[e.ID].Began) {
			disturbed[e.ID] = true
		}
	}
	judged := 0
	for id, e := range last {
		if disturbed[id] || !late[id].Add(drainTime).Before(e.Began) {
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

// movesDoor reports whether a call may have closed or reopened an account.
func (e entry) movesDoor() bool {
	return (e.Verb == verbClose || e.Verb == verbReopen) && e.Word != unwritten
}

// clear reports whether an answer says if an account is closed.
func (e entry) clear() bool { return e.Word == done || e.Word == keptOpen }
