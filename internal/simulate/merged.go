package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// Merges reports whether two messages may travel as one update of one account.
// Such an update has one condition on the fence, and sets at most one fence.
func (w *World) Merges(a, b Message) bool {
	return joins(a.Op) && joins(b.Op) &&
		!w.leg(a).effect() &&
		w.leg(a).Account == w.leg(b).Account &&
		a.Transfer != b.Transfer &&
		oneFence(a.Op, b.Op) &&
		!fencesOut(a.Op, b.Op) && !fencesOut(b.Op, a.Op)
}

// joins reports whether an operation may be merged with others at all.
func joins(op protocol.Operation) bool {
	switch op.Kind {
	case protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo:
		return true
	default:
		return false
	}
}

// oneFence reports whether two operations don't name different fences.
func oneFence(a, b protocol.Operation) bool {
	return a.Kind != protocol.Prepare || b.Kind != protocol.Prepare ||
		a.Fence == b.Fence
}

// fencesOut reports whether one operation replaces the fence that the other one names.
func fencesOut(a, b protocol.Operation) bool {
	return a.ReplaceFence && b.Kind == protocol.Prepare
}

// update is one update of an account: writes of different transfers, which happen
// together or not at all.
type update struct {
	writes   [MaxTransfers]bool           // which transfers it writes for
	found    [MaxTransfers]protocol.Trace // that these must have
	left     [MaxTransfers]protocol.Trace // that these have then
	fence    protocol.Fence               // that the prepares name
	token    protocol.Fence               // that is set, if not ""
	prepares bool
	taken    int64 // by all debits that are prepared
	largest  int64 // credit that is prepared
	paid     int64 // by paid and settled credits and undone debits
}

// merge draws up the update for messages that may travel as one.
// Its new fence is that of one of them, and so a fresh one.
func (w *World) merge(members []Message) update {
	var u update
	for _, m := range members {
		leg, t := w.leg(m), m.Transfer
		u.writes[t], u.found[t] = true, protocol.Reserved
		switch m.Op.Kind {
		case protocol.Prepare:
			u.found[t], u.left[t] = protocol.NoTrace, protocol.Reserved
			u.prepares, u.fence = true, m.Op.Fence
			u.taken += leg.debit()
			u.largest = max(u.largest, leg.credit())
		case protocol.Pay:
			u.left[t] = protocol.Done
			u.paid += w.paidOnSettle(t, leg)
		case protocol.Settle:
			u.paid += w.paidOnSettle(t, leg)
		case protocol.Clear:
			u.found[t] = protocol.Done
		case protocol.Undo:
			u.paid += leg.debit()
		default:
		}
		if m.Op.ReplaceFence {
			u.token = m.Token
		}
	}
	return u
}

// applyMerged lets the primary perform the update that carries all of the messages, and
// reports whether it matched.
// The update does what its members do one right after the other, the prepares of credits
// last but one, those of debits last, if each of them matches then.
// Otherwise it does nothing, as if all were lost.
// So nothing can come of it that could not come of the members by themselves.
func (w *World) applyMerged(members []Message) bool {
	u := w.merge(members)
	a := &w.Accounts[w.leg(members[0]).Account]
	fits := !a.Missing &&
		u.findsAll(a) &&
		(!u.prepares || w.admits(a, u))
	if !fits {
		return false
	}
	for t := range a.Traces {
		if u.writes[t] {
			a.Traces[t] = u.left[t]
		}
	}
	a.Balance += u.paid - u.taken
	if u.token != "" {
		a.Fence = u.token
	}
	return true
}

// admits reports whether an account can take part in all the transfers that an update
// prepares.
// Debits add up, and may spend what the same update pays in, since the update happens as
// a whole or not at all.
// A prepared credit is not paid in yet.
// It only needs room, and the update needs room for the largest credit, as each credit
// would by itself.
// An account with less than can be stored takes none, whatever is paid in.
func (w *World) admits(a *Account, u update) bool {
	balance := a.Balance + u.paid
	return a.Fence == u.fence &&
		!a.Closed &&
		!a.Frozen &&
		!a.Foreign &&
		!a.Odd &&
		(u.taken == 0 || balance-u.taken >= max(a.Floor, -w.MostBalance)) &&
		(u.taken > 0 || a.Balance >= -w.MostBalance) &&
		(u.largest == 0 || balance+u.largest <= w.MostBalance)
}

// findsAll reports whether an account has the traces that an update needs.
func (u *update) findsAll(a *Account) bool {
	for t, trace := range a.Traces {
		if u.writes[t] && trace != u.found[t] {
			return false
		}
	}
	return true
}

// PerformMerged performs messages that may travel as one update (see [World.Merges]), and
// reports whether the update matched.
func (w *World) PerformMerged(members []Message) bool {
	matched := w.applyMerged(members)
	w.replicate()
	return matched
}
