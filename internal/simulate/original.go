package simulate

import (
	"fmt"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// planned returns the leg of a reversal of all that is left, where that is so much.
func (l Leg) planned(left int64) Leg {
	switch {
	case l.Amount < 0:
		l.Amount = -left
	case l.Amount > 0:
		l.Amount = left
	}
	if l.MayBeGone {
		l.Takes = left
	}
	return l
}

// OriginalFence stands for the fence of an original.
// With each reversal it is another one.
func (a *Account) OriginalFence() protocol.Fence {
	return protocol.Fence(fmt.Sprintf("%s after %d", a.Fence, a.Latest))
}

// fenceAt returns the fence that a prepare has to name.
func (w *World) fenceAt(a *Account, leg Leg) protocol.Fence {
	if leg.MayBeGone {
		return a.OriginalFence()
	}
	return a.Fence
}

// taken reports whether another transfer has reserved a document.
func (a *Account) taken(transfer int) bool {
	others := *a
	others.Traces[transfer] = protocol.NoTrace
	return others.marked()
}

// addOriginalFacts adds how a reversal compares with what is left of its original.
func (w *World) addOriginalFacts(facts *protocol.Facts, a *Account, m Message) {
	takes, all := w.leg(m).Takes, w.Alls[m.Transfer]
	some := a.Room > 0
	facts.Fence = a.OriginalFence()
	facts.BelowMarkerLimit = true
	facts.Unmet = a.Value != 0
	facts.Taken = a.taken(m.Transfer)
	facts.Exhausted = !some
	facts.Exceeded = some && takes > a.Room && (!all || w.Earlier[m.Transfer])
	facts.Outdated = some && takes != a.Room && all && !facts.Exceeded
}

// plan returns what a new execution of a reversal of all that is left knows of it.
// One that has read something older claims nothing, and reads again.
func (w *World) plan(transfer int) Transfer {
	if !w.Alls[transfer] {
		return Transfer{}
	}
	seen := w.Transfers[transfer]
	if seen.Planned == 0 {
		seen.Planned = w.left(transfer)
	}
	return seen
}

// knowsPlan reports whether an executor knows what its transfer moves.
// Who takes a reversal of all over has read that before all else, and does nothing before
// it is there.
func (r *run) knowsPlan(e *executor) bool {
	if claim := e.start.Claim; !r.w.Alls[e.transfer] || claim == protocol.Insert || claim == protocol.Replan {
		return true
	}
	if !e.seen.Stored {
		e.seen = r.w.plan(e.transfer)
	}
	return e.seen.Stored
}

// left returns what is left of the original of a reversal; all of it where nothing is.
func (w *World) left(transfer int) int64 {
	legs := w.Plans[transfer]
	original := legs[len(legs)-1]
	if room := w.majority.Accounts[original.Account].Room; room > 0 {
		return room
	}
	return original.Takes
}

// replanned is added to the nonce of an executor that plans its transfer anew.
const replanned = 100

// replan lets an executor whose plan is outdated begin anew, with what is left now.
func (r *run) replan(e *executor) error {
	e.owner += replanned
	e.start = protocol.Start{Claim: protocol.Replan}
	e.seen.Planned = r.w.left(e.transfer)
	e.x = r.w.Begin(e.transfer, e.start)
	r.note("%s plans %s anew, to take %d", executorName(e.owner), transferName(e.transfer), e.seen.Planned)
	return r.ask(e)
}

// same reports whether a nonce is that of an executor, or was before it planned anew.
func (e *executor) same(owner int) bool { return owner%replanned == e.owner%replanned }

// blames reports whether a transfer is refused because of another participant than a leg.
func (w *World) blames(transfer int, leg Leg) bool {
	blamed := w.Transfers[transfer].Refusal.Participant
	return blamed != protocol.NoParticipant && w.Plans[transfer][blamed].Account != leg.Account
}

// checkOriginals checks the originals of all reversals.
func (w *World) checkOriginals(before *Version) error {
	for t := range w.Plans {
		for _, leg := range w.legs(t) {
			if !leg.MayBeGone || w.Accounts[leg.Account].Missing {
				continue
			}
			if err := w.checkTurn(t, leg, before); err != nil {
				return err
			}
			if err := w.checkLeft(t, leg, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTurn checks that a reversal has reserved its original only where it fits, and is
// not refused by an account before that.
func (w *World) checkTurn(t int, leg Leg, before *Version) error {
	a, was := &w.Accounts[leg.Account], &before.Accounts[leg.Account]
	stored := &w.Transfers[t]
	rolledBack := stored.State == protocol.Rollback && before.Transfers[t].State == protocol.Preparing
	reserved := was.Traces[t] == protocol.NoTrace && a.Traces[t] == protocol.Reserved
	fits := was.Value == 0 && !was.taken(t) && leg.Takes <= was.Room && (!w.Alls[t] || leg.Takes == was.Room)
	switch {
	case reserved && !fits:
		return violates(3, "%s has reserved a transfer that it can't reverse", transferName(t))
	case rolledBack && a.Traces[t] == protocol.NoTrace && w.blames(t, leg):
		return violates(5, "%s is refused for %s before its turn", transferName(t), stored.Refusal.Reason)
	}
	return nil
}

// checkLeft checks that what is left of an original is what its reversals have left.
func (w *World) checkLeft(t int, leg Leg, before *Version) error {
	a, was := &w.Accounts[leg.Account], &before.Accounts[leg.Account]
	settled := was.Traces[t] == protocol.Reserved && w.settledAt(t, a)
	latest := a.Latest == setBy(t) && was.Latest != a.Latest
	switch {
	case settled && a.Room != was.Room-leg.Takes:
		return violates(4, "%s took %d of %d, and %d is left", transferName(t), leg.Takes, was.Room, a.Room)
	case settled != latest:
		return violates(4, "%s is %q, and the latest reversal is %d", transferName(t), w.Transfers[t].State, a.Latest)
	case a.Room < 0:
		return violates(4, "more was taken back of a transfer than it has moved")
	}
	return nil
}
