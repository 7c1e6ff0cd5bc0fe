package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// due returns what a transfer that goes forward pays into a leg's account when it is
// settled there.
// With it the whole movement is the leg's amount, or the part of it that was posted.
// The writes compute that in their own way: see paidOnSettle.
func (w *World) due(transfer int, leg Leg) int64 {
	moved, posted := leg.Amount, w.Transfers[transfer].Posted
	switch {
	case posted == 0 || moved == 0:
	case moved < 0:
		moved = -posted
	default:
		moved = posted
	}
	return leg.debit() + moved
}

// hindrance returns the first reason, in the order in which they are reported, why a
// participant can't be prepared; 0 if there is none.
// Facts compute that in their own way.
func (w *World) hindrance(transfer, participant int) protocol.Reason {
	leg := w.legs(transfer)[participant]
	a := &w.Accounts[leg.Account]
	reserved := 0
	for other, trace := range a.Traces {
		if trace == protocol.Reserved && (other != transfer || !leg.effect()) {
			reserved++
		}
	}
	switch {
	case !leg.effect():
		return w.hindranceOfMoney(a, leg, reserved)
	case leg.MayBeGone:
		return w.hindranceOfReversal(a, transfer, leg)
	case a.Missing || a.Value != 0 || reserved > 0:
		return protocol.RequirementFailed
	}
	return 0
}

// hindranceOfReversal does the same for the original of a reversal.
func (w *World) hindranceOfReversal(a *Account, transfer int, leg Leg) protocol.Reason {
	switch {
	case a.Missing || a.Value != 0:
		return protocol.RequirementFailed
	case a.Room == 0:
		return protocol.AlreadyReversed
	case leg.Takes > a.Room && (!w.Alls[transfer] || w.Earlier[transfer]):
		return protocol.ReversalExceeds
	}
	return 0
}

// hindranceOfMoney does the same for an account on which some transfers have reserved
// something.
func (w *World) hindranceOfMoney(a *Account, leg Leg, reserved int) protocol.Reason {
	switch balance := a.Balance - leg.debit(); {
	case a.Missing:
		return protocol.NotFound
	case a.Closed:
		return protocol.Closed
	case a.Frozen:
		return protocol.Frozen
	case a.Foreign:
		return protocol.CurrencyMismatch
	case a.Odd:
		return protocol.AmountKind
	case reserved >= w.MarkerLimit:
		return protocol.Busy
	case leg.debit() > 0 && (balance < a.Floor || balance < -w.MostBalance):
		return protocol.InsufficientFunds
	case leg.credit() > 0 && a.Balance+leg.credit() > w.MostBalance:
		return protocol.Overflow
	}
	return 0
}

// checkHolds checks that held money stays where it is until the hold is decided, and that
// the decision is allowed.
func (w *World) checkHolds(before *Version) error {
	for t := range w.Plans {
		legs := w.legs(t)
		stored, was := &w.Transfers[t], &before.Transfers[t]
		if err := w.checkReserved(t, legs); err != nil {
			return err
		}
		decided := was.State == protocol.Preparing && stored.State != was.State
		switch hold := w.Holds[t]; {
		case decided && hold && stored.State == protocol.Committed:
			if err := w.checkPosted(t, was); err != nil {
				return err
			}
		case decided && hold:
			if err := w.checkVoided(t, was); err != nil {
				return err
			}
		case !hold && (stored.Held || stored.Refusal.Reason == protocol.Expired):
			return violates(4, "%s is no hold, and was treated like one", transferName(t))
		}
	}
	return nil
}

// checkReserved checks that a transfer that is held has its markers.
func (w *World) checkReserved(t int, legs []Leg) error {
	stored := &w.Transfers[t]
	for _, leg := range legs {
		a := &w.Accounts[leg.Account]
		if stored.Held && stored.State == protocol.Preparing && a.Traces[t] != protocol.Reserved && !a.Purged {
			return violates(4, "%s is held, and has no marker at %s", transferName(t), accountName(leg.Account))
		}
	}
	return nil
}

// checkPosted checks that a hold was committed by an executor that posted it, and that
// posting took it over.
func (w *World) checkPosted(t int, was *Transfer) error {
	switch {
	case !was.Held:
		return violates(4, "%s was posted before it was held", transferName(t))
	case w.Expired[t]:
		return violates(4, "%s was posted after it had expired", transferName(t))
	case w.Transfers[t].Epoch == was.Epoch:
		return violates(4, "%s is a hold and was committed, and nobody has posted it", transferName(t))
	}
	return nil
}

// checkVoided checks that a hold was rolled back for a reason that allows it.
func (w *World) checkVoided(t int, was *Transfer) error {
	switch reason := w.Transfers[t].Refusal.Reason; {
	case reason == protocol.Expired && !w.Expired[t]:
		return violates(4, "%s is said to have expired, and has not", transferName(t))
	case reason == protocol.Stalled:
		return violates(4, "%s is a hold and was taken for stalled", transferName(t))
	case was.Held && reason != protocol.Expired && reason != protocol.Voided && reason != protocol.Cancelled:
		return violates(4, "%s was held, and is rolled back for %s", transferName(t), reason)
	}
	return nil
}

// checkEffects checks that a document gets the value of a transfer exactly when that is
// settled there, and that it was reserved for one transfer at a time, as it required.
// Others may write the document afterwards: see disturbDocument.
func (w *World) checkEffects(before *Version) error {
	for t := range w.Plans {
		legs := w.legs(t)
		for _, leg := range legs {
			a, was := &w.Accounts[leg.Account], &before.Accounts[leg.Account]
			set := a.Value == setBy(t) && was.Value != a.Value
			reserved, settled := a.Traces[t] == protocol.Reserved, was.Traces[t] == protocol.Reserved && w.settledAt(t, a)
			switch {
			case !leg.effect() || leg.MayBeGone || a.Missing:
			case set != settled:
				return violates(4, "%s is %q, and the document's value is %d", transferName(t), w.Transfers[t].State, a.Value)
			case reserved && was.Traces[t] == protocol.NoTrace && !was.met(t):
				return violates(3, "%s has reserved a document that is not as it requires", transferName(t))
			}
		}
	}
	return nil
}

// settledAt reports whether a transfer that has reserved an account has paid there.
func (w *World) settledAt(t int, a *Account) bool {
	return a.Traces[t] == protocol.Done || a.Traces[t] == protocol.NoTrace && w.Transfers[t].forward()
}
