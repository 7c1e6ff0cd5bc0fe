package simulate

import (
	"github.com/mongotransfer/transfer/internal/protocol"
)

// apply lets the primary perform a write, and reports whether it matched.
// Each condition of a filter has a line of its own.
func (w *World) apply(m Message) bool {
	if m.Op.Participant != protocol.NoParticipant {
		return w.applyAt(&w.Accounts[w.leg(m).Account], m)
	}
	t := &w.Transfers[m.Transfer]
	switch m.Op.Kind {
	case protocol.Claim:
		if !w.claimable(m) {
			return false
		}
		t.claim(m)
		return true
	case protocol.Verify:
		return t.Stored &&
			t.State == protocol.Preparing &&
			t.Epoch == m.Op.Epoch &&
			t.Owner == m.Owner
	case protocol.MarkHeld:
		return t.markHeld(m)
	case protocol.Decide:
		return t.decide(m)
	case protocol.Finish:
		return t.finish(m)
	default:
		return false // not a write to the transfer
	}
}

func (t *Transfer) markHeld(m Message) bool {
	if t.State != protocol.Preparing ||
		t.Epoch != m.Op.Epoch ||
		t.Owner != m.Owner {
		return false
	}
	t.Held, t.Clean = true, t.Clean || m.Op.Clean
	return true
}

func (t *Transfer) decide(m Message) bool {
	if t.State != protocol.Preparing ||
		t.Epoch != m.Op.Epoch {
		return false
	}
	t.State, t.Refusal, t.Clean = m.Op.To, m.Op.Refusal, t.Clean || m.Op.Clean
	return true
}

func (t *Transfer) finish(m Message) bool {
	if m.Op.To == protocol.Success && t.State != protocol.Committed ||
		m.Op.To == protocol.Fail && t.State != protocol.Rollback {
		return false
	}
	t.State = m.Op.To
	return true
}

// claimable reports whether a claim matches.
// Every transfer is old enough: the threshold is zero.
func (w *World) claimable(m Message) bool {
	t := &w.Transfers[m.Transfer]
	if t.Stored &&
		t.Plan != m.Seen.Plan {
		return false
	}
	switch m.Op.Claim {
	case protocol.Insert:
		return !t.Stored
	case protocol.FromInitiated, protocol.CancelInitiated:
		return t.State == protocol.Initiated
	case protocol.TakeOver:
		return t.State == protocol.Preparing && !w.Holds[m.Transfer] || t.State == protocol.Committed || t.State == protocol.Rollback
	case protocol.TakeToCancel:
		return t.State == protocol.Preparing
	case protocol.Replan:
		return t.State == protocol.Preparing &&
			t.Epoch == m.Seen.Epoch &&
			t.Owner == m.Seen.Owner
	case protocol.TakeUnheld, protocol.Post, protocol.Expire:
		return w.holdClaimable(m)
	}
	return false
}

// holdClaimable reports whether a claim of a hold matches.
func (w *World) holdClaimable(m Message) bool {
	t, hold := &w.Transfers[m.Transfer], w.Holds[m.Transfer]
	over := !hold || w.Expired[m.Transfer] // what has no time to expire at has passed it
	switch m.Op.Claim {
	case protocol.TakeUnheld:
		return t.State == protocol.Preparing && hold && !t.Held
	case protocol.Post:
		return t.State == protocol.Preparing && hold && t.Held && !over
	case protocol.Expire:
		return t.State == protocol.Preparing && hold && over
	default:
		return false
	}
}

// claim performs a claim that matches.
func (t *Transfer) claim(m Message) {
	switch m.Op.Claim {
	case protocol.Insert:
		*t = Transfer{Stored: true, State: protocol.Preparing, Epoch: 1, Planned: m.Seen.Planned}
	case protocol.FromInitiated:
		t.State, t.Epoch = protocol.Preparing, 1
	case protocol.CancelInitiated:
		t.State, t.Epoch, t.Refusal = protocol.Rollback, 1, m.Op.Refusal
	case protocol.Post:
		t.State, t.Posted = protocol.Committed, m.Posted
		t.Epoch++
	case protocol.Replan:
		t.Planned = m.Seen.Planned
		t.Plan++
		t.Epoch++
	case protocol.TakeOver, protocol.TakeToCancel, protocol.TakeUnheld, protocol.Expire:
		t.Epoch++
	}
	t.Owner = m.Owner
}

// extender is the nonce of those who extend holds.
// Each is another one, and none of them asks whose a hold is.
const extender = 2000

// extend lets a hold that is held expire later, and takes it over.
// It asks for the time, but of a primary whose clock may be behind that of the one
// before: by that clock, a hold that had expired has not expired.
func (w *World) extend(transfer int) bool {
	if !w.heldNow(transfer) {
		return false
	}
	w.Expired[transfer] = false
	w.Transfers[transfer].Epoch++
	w.Transfers[transfer].Owner = extender
	return true
}

// heldNow reports whether a transfer is a hold that is held.
func (w *World) heldNow(transfer int) bool {
	t := &w.Transfers[transfer]
	return w.Holds[transfer] && t.Held && t.State == protocol.Preparing
}

// applyAt performs a write to a participant.
func (w *World) applyAt(a *Account, m Message) bool {
	if a.Missing {
		return false
	}
	if m.Op.Kind == protocol.Prepare {
		return w.prepare(a, m)
	}
	trace, left := a.Traces[m.Transfer], protocol.NoTrace
	switch m.Op.Kind {
	case protocol.Pay:
		if trace != protocol.Reserved {
			return false
		}
		w.pay(a, m)
		left = protocol.Done
	case protocol.Settle:
		if trace != protocol.Reserved {
			return false
		}
		w.pay(a, m)
	case protocol.Clear:
		if trace != protocol.Done {
			return false
		}
	case protocol.Undo:
		if trace != protocol.Reserved {
			return false
		}
		a.Balance += w.leg(m).debit()
	case protocol.FenceOnly:
		if trace != protocol.NoTrace {
			return false
		}
	default:
		return false // not a write to a participant
	}
	a.Traces[m.Transfer] = left
	if m.Op.ReplaceFence || m.Op.Kind == protocol.FenceOnly {
		a.Fence = m.Token
	}
	return true
}

// pay pays in what is due, or sets what an effect sets.
func (w *World) pay(a *Account, m Message) {
	a.Balance += w.paidOnSettle(m.Transfer, w.leg(m))
	switch leg := w.leg(m); {
	case leg.MayBeGone:
		a.Room -= leg.Takes
		a.Latest = setBy(m.Transfer)
	case leg.effect():
		a.Value = setBy(m.Transfer)
	}
}

// prepare sets the marker, and takes a debit off the balance.
func (w *World) prepare(a *Account, m Message) bool {
	can := w.facts(&w.Version, m)
	fits := w.fenceAt(a, w.leg(m)) == m.Op.Fence &&
		!can.Taken &&
		can.Trace == protocol.NoTrace &&
		can.Open &&
		can.Unfrozen &&
		can.Currency &&
		can.Kind &&
		can.Funds &&
		can.WithinLimits &&
		!can.Unmet
	if !fits {
		return false
	}
	a.Traces[m.Transfer] = protocol.Reserved
	a.Balance -= w.leg(m).debit()
	return true
}

// effectOn returns an effect on a document, and false if it is an account.
func (w *World) effectOn(account int) (Leg, bool) {
	for _, legs := range w.Plans {
		for _, leg := range legs {
			if leg.Account == account && leg.effect() {
				return leg, true
			}
		}
	}
	return Leg{}, false
}

// paidOnSettle returns what a leg's account is paid when the transfer is settled there.
// That is a credit.
// If a part of a hold was posted, it is that part, and the rest for the account that was
// debited.
func (w *World) paidOnSettle(transfer int, leg Leg) int64 {
	posted := w.Transfers[transfer].Posted
	switch {
	case posted == 0 || leg.effect():
		return leg.credit()
	case leg.Amount < 0:
		return leg.debit() - posted
	}
	return posted
}
