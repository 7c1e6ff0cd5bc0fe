package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// violation says which invariant of the protocol is broken.
type violation struct {
	invariant int
	what      string
}

func (v *violation) Error() string { return fmt.Sprintf("invariant %d: %s", v.invariant, v.what) }

func violates(invariant int, format string, args ...any) error {
	return &violation{invariant: invariant, what: fmt.Sprintf(format, args...)}
}

// broken returns the number of the invariant that an error says is broken, 0 if it says
// none.
func broken(err error) int {
	var found *violation
	if errors.As(err, &found) {
		return found.invariant
	}
	return 0
}

// what returns the text of an error without the number of the invariant.
func what(err error) string {
	var found *violation
	if errors.As(err, &found) {
		return found.what
	}
	return err.Error()
}

// check checks the invariants 1 to 5 on what the primary has stored, and that it followed
// from what was stored before.
// The sixth one needs a recovery: see recovers.
func (w *World) check(before *Version) error {
	for _, check := range []func(*Version) error{
		w.checkConservation, w.checkMarkers, w.checkAccounts, w.checkPrepared, w.checkStates, w.checkBalances,
		w.checkTold, w.checkRefusals, w.checkClean, w.checkHolds, w.checkEffects, w.checkOriginals,
	} {
		if err := check(before); err != nil {
			return err
		}
	}
	return nil
}

// forward reports whether a transfer is on its way to success, or there.
func (t *Transfer) forward() bool {
	return t.State == protocol.Committed || t.State == protocol.Success
}

// checkConservation checks that the balances and the money in transit add up to what was
// put in.
func (w *World) checkConservation(*Version) error {
	sum, given := int64(0), int64(0)
	for i := range w.Accounts {
		sum += w.Accounts[i].Balance
		given += w.given[i]
	}
	for t := range w.Plans {
		legs := w.legs(t)
		for _, leg := range legs {
			// The money that was taken waits in the debit's marker until the decision is
			// stored, less what done marks have paid in; and in the credit's marker after
			// it.
			// The part of a hold that is not posted still waits in the debit's marker.
			trace, forward := w.Accounts[leg.Account].Traces[t], w.Transfers[t].forward()
			switch {
			case trace == protocol.Reserved && forward:
				sum += w.due(t, leg)
			case trace == protocol.Reserved:
				sum += leg.debit()
			case trace == protocol.Done && !forward:
				sum -= leg.credit()
			}
		}
	}
	if sum != given {
		return violates(1, "%d are there, %d were put in", sum, given)
	}
	return nil
}

func (w *World) checkMarkers(*Version) error {
	for t := range w.Transfers {
		state := w.Transfers[t].State
		paid := state == protocol.Preparing || state == protocol.Committed
		for i := range w.Accounts {
			switch trace := w.Accounts[i].Traces[t]; {
			case trace == protocol.Reserved && !paid && state != protocol.Rollback:
				return violates(2, "%s is %q and has a marker at %s", transferName(t), state, accountName(i))
			case trace == protocol.Done && (!paid || w.Holds[t] || w.Earlier[t]):
				return violates(2, "%s is %q and has a done mark at %s", transferName(t), state, accountName(i))
			}
		}
	}
	return nil
}

// checkClean checks that no prepare of a transfer that was decided clean is on its way:
// such a decision sets no new fence.
func (w *World) checkClean(*Version) error {
	for _, sent := range w.flight {
		for _, m := range sent {
			if m.Op.Kind == protocol.Prepare && w.Transfers[m.Transfer].Clean {
				return violates(4, "%s was decided clean, and a prepare of it is on its way", transferName(m.Transfer))
			}
		}
	}
	return nil
}

// checkAccounts checks that no account went below its floor, and that nothing has moved
// at an account that can't take part.
func (w *World) checkAccounts(before *Version) error {
	for i := range w.Accounts {
		a, was := &w.Accounts[i], &before.Accounts[i]
		moved := a.marked() || was.Closed && a.Balance != was.Balance
		switch {
		case a.Balance < a.Floor:
			return violates(3, "%s has %d, less than its floor", accountName(i), a.Balance)
		case a.Closed && !a.Sealed && moved:
			return violates(3, "%s is closed, and was moved", accountName(i))
		case (a.Foreign || a.Odd) && moved:
			return violates(3, "%s is of another kind or currency, and has a marker", accountName(i))
		}
	}
	return nil
}

// checkPrepared checks that no marker was set where none may be.
func (w *World) checkPrepared(before *Version) error {
	for t := range w.Plans {
		legs := w.legs(t)
		for _, leg := range legs {
			a, was := &w.Accounts[leg.Account], &before.Accounts[leg.Account]
			switch {
			case a.Traces[t] == protocol.NoTrace || was.Traces[t] != protocol.NoTrace:
			case a.Closed:
				return violates(3, "%s is closed, and gets a marker", accountName(leg.Account))
			case a.Frozen:
				return violates(3, "%s is frozen, and gets a marker", accountName(leg.Account))
			case leg.credit() > 0 && max(was.Balance, a.Balance)+leg.credit() > w.MostBalance:
				return violates(3, "%s is to receive more than can be stored", accountName(leg.Account))
			}
		}
	}
	return nil
}

// checkStates checks that a transfer only ever goes forward.
func (w *World) checkStates(before *Version) error {
	next := func(state protocol.State) []protocol.State {
		switch state {
		case "":
			return []protocol.State{protocol.Preparing}
		case protocol.Initiated:
			return []protocol.State{protocol.Preparing, protocol.Rollback}
		case protocol.Preparing:
			return []protocol.State{protocol.Committed, protocol.Rollback}
		case protocol.Committed:
			return []protocol.State{protocol.Success}
		case protocol.Rollback:
			return []protocol.State{protocol.Fail}
		case protocol.Success, protocol.Fail:
		}
		return nil
	}
	for t := range w.Transfers {
		from, to := before.Transfers[t].State, w.Transfers[t].State
		if from != to && !slices.Contains(next(from), to) {
			return violates(4, "%s went from %q to %q", transferName(t), from, to)
		}
	}
	return nil
}

// checkBalances checks each balance by itself.
// Every transfer has moved its money there once, or not at all, as its state and its
// marker say.
func (w *World) checkBalances(*Version) error {
	expected := w.given
	for t := range w.Plans {
		legs := w.legs(t)
		forward := w.Transfers[t].forward()
		for _, leg := range legs {
			trace := w.Accounts[leg.Account].Traces[t]
			if forward || trace != protocol.NoTrace {
				expected[leg.Account] -= leg.debit()
			}
			if forward && trace == protocol.NoTrace || trace == protocol.Done {
				expected[leg.Account] += w.due(t, leg)
			}
		}
	}
	for i := range w.Accounts {
		if w.Accounts[i].Balance != expected[i] {
			return violates(4, "%s has %d, and %d would be right", accountName(i), w.Accounts[i].Balance, expected[i])
		}
	}
	return nil
}

// checkTold checks that what callers have learned is true, and stays true.
func (w *World) checkTold(*Version) error {
	for t := range w.Transfers {
		stored, told := &w.majority.Transfers[t], &w.told[t]
		if told.held != 0 && !stored.Held {
			return violates(5, "%s was told to be held, and is not", transferName(t))
		}
		if err := w.checkToldCommitted(t); err != nil {
			return err
		}
		if told.refused && stored.State != protocol.Rollback && stored.State != protocol.Fail {
			return violates(5, "a refusal was told of %s, which is %q", transferName(t), stored.State)
		}
		if stored.Stored && told.unwritten&(1<<stored.Owner) != 0 {
			return violates(5, "%s said that nothing is stored of %s, which is its own", executorName(stored.Owner), transferName(t))
		}
	}
	return nil
}

// checkToldCommitted checks that what somebody was told to be committed can never be
// rolled back.
// Until the record is stored, each participant holds a trace.
// What was told to be settled is so for each reader.
func (w *World) checkToldCommitted(t int) error {
	stored, told := &w.majority.Transfers[t], &w.told[t]
	switch {
	case told.committed && !stored.forward() && stored.State != protocol.Preparing:
		return violates(5, "%s was told to be committed, and is %q", transferName(t), stored.State)
	case told.settled && !stored.forward():
		return violates(5, "%s was told to be settled, and is %q", transferName(t), stored.State)
	}
	for _, leg := range w.legs(t) {
		switch a := &w.majority.Accounts[leg.Account]; {
		case told.committed && !stored.forward() && a.Traces[t] == protocol.NoTrace:
			return violates(5, "%s was told to be committed, and has no trace at %s", transferName(t), accountName(leg.Account))
		case told.settled && a.Traces[t] == protocol.Reserved && (leg.Amount >= 0 || stored.Posted != 0):
			return violates(5, "%s was told to be settled, and is not at %s", transferName(t), accountName(leg.Account))
		}
	}
	return nil
}

// checkRefusals checks that a refusal rests on what was true at some moment since the
// claim.
// Refusals by the server itself are not checked.
func (w *World) checkRefusals(before *Version) error {
	for t := range w.Plans {
		legs := w.legs(t)
		stored, was := &w.Transfers[t], &before.Transfers[t]
		if stored.Epoch != was.Epoch || stored.Owner != was.Owner {
			w.reasons[t] = [MaxAccounts]uint32{}
		}
		for i := range legs {
			w.reasons[t][i] |= 1 << w.hindrance(t, i)
		}
		r := stored.Refusal
		decided := stored.State == protocol.Rollback && was.State == protocol.Preparing
		if !decided || r.Participant == protocol.NoParticipant || r.Reason == protocol.Unwritable {
			continue
		}
		if w.reasons[t][r.Participant]&(1<<r.Reason) == 0 {
			return violates(5, "%s is refused for %s, and that was not so", transferName(t), r.Reason)
		}
	}
	return nil
}

// tell records what an executor may report to its caller now, and checks that it is true.
func (w *World) tell(e *executor) error {
	x, told, stored := e.x, &w.told[e.transfer], &w.majority.Transfers[e.transfer]
	switch {
	case x.Outcome() == protocol.Held:
		if err := w.tellHeld(e, stored); err != nil {
			return err
		}
	case x.Progress() >= protocol.Decided:
		if err := w.tellDecided(e, stored); err != nil {
			return err
		}
	case x.Outcome() == protocol.Unclaimable && e.start.Claim == protocol.Insert && !x.ClaimInDoubt():
		told.unwritten |= 1 << e.owner
	}
	if !e.endsTruly(stored) {
		return violates(5, "%s ends with outcome %d, and %s is %q", executorName(e.owner), x.Outcome(), transferName(e.transfer), stored.State)
	}
	return w.checkTold(nil)
}

// tellDecided records that a caller hears of the decision, and of the money if it is
// there.
func (w *World) tellDecided(e *executor, stored *Transfer) error {
	x, told := e.x, &w.told[e.transfer]
	switch {
	case e.start.Claim == protocol.Post && x.Claimed() && stored.Posted != e.posted:
		return violates(5, "%s has posted %d, and %d is stored", executorName(e.owner), e.posted, stored.Posted)
	case !x.State().Back():
		told.committed = true
		told.settled = told.settled || x.Progress() >= protocol.Settled
		return nil
	}
	told.refused = true
	if x.Refusal().Reason != 0 && x.Refusal() != stored.Refusal {
		return violates(5, "%v was told and %v is stored", x.Refusal(), stored.Refusal)
	}
	return nil
}

// tellHeld records that a caller hears that the money is held.
func (w *World) tellHeld(e *executor, stored *Transfer) error {
	told := &w.told[e.transfer]
	if first := told.held&(1<<e.owner) == 0; first && (stored.State != protocol.Preparing || !w.Holds[e.transfer]) {
		return violates(5, "%s says that %s is held, which is %q", executorName(e.owner), transferName(e.transfer), stored.State)
	}
	told.held |= 1 << e.owner
	return nil
}

// endsTruly reports whether the outcome of an executor agrees with what is stored.
func (e *executor) endsTruly(stored *Transfer) bool {
	same := stored.State == e.x.State()
	switch e.x.Outcome() {
	case protocol.Finished:
		return same && stored.State.Final()
	case protocol.Overtaken:
		return stored.Owner != e.owner || stored.Epoch != e.epoch || !same
	case protocol.Gone:
		return !stored.Stored
	case protocol.Held:
		return stored.Held
	default:
		return true
	}
}
