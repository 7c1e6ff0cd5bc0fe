package simulate

import "github.com/mongotransfer/transfer/internal/protocol"

// apply lets the primary perform a write, and reports whether it matched. Each condition of a filter has a line of its own.
func (w *World) apply(m Message) bool {
	if m.Op.Participant != protocol.NoParticipant {
		return w.applyAt(&w.Accounts[w.leg(m).Account], m)
	}
	t := &w.Transfers[m.Transfer]
	switch m.Op.Kind {
	case protocol.Claim:
		return t.claim(m)
	case protocol.Verify:
		return t.Stored &&
			t.State == protocol.Preparing &&
			t.Epoch == m.Op.Epoch &&
			t.Owner == m.Owner
	case protocol.Decide:
		if t.State != protocol.Preparing ||
			t.Epoch != m.Op.Epoch {
			return false
		}
		t.State, t.Refusal, t.Clean = m.Op.To, m.Op.Refusal, m.Op.Clean
		return true
	case protocol.Finish:
		if m.Op.To == protocol.Success && t.State != protocol.Committed ||
			m.Op.To == protocol.Fail && t.State != protocol.Rollback {
			return false
		}
		t.State = m.Op.To
		return true
	default:
		return false // not a write to the transfer
	}
}

// claim performs a claim. Every transfer is as old as it takes: the threshold is zero.
func (t *Transfer) claim(m Message) bool {
	switch m.Op.Claiming {
	case protocol.Insert:
		if t.Stored {
			return false
		}
		*t = Transfer{Stored: true, State: protocol.Preparing, Epoch: 1}
	case protocol.FromInitiated:
		if t.State != protocol.Initiated {
			return false
		}
		t.State, t.Epoch = protocol.Preparing, 1
	case protocol.CancelInitiated:
		if t.State != protocol.Initiated {
			return false
		}
		t.State, t.Epoch, t.Refusal = protocol.Rollback, 1, m.Op.Refusal
	case protocol.TakeOver:
		if t.State != protocol.Preparing && t.State != protocol.Committed && t.State != protocol.Rollback {
			return false
		}
		t.Epoch++
	case protocol.TakeToCancel:
		if t.State != protocol.Preparing {
			return false
		}
		t.Epoch++
	}
	t.Owner = m.Owner
	return true
}

// applyAt performs a write to a participant.
func (w *World) applyAt(a *Account, m Message) bool {
	if a.Missing {
		return false
	}
	if m.Op.Kind == protocol.Prepare {
		return w.prepare(a, m)
	}
	marked := a.Markers[m.Transfer]
	switch m.Op.Kind {
	case protocol.Settle:
		if !marked {
			return false
		}
		a.Balance += w.leg(m).credit()
	case protocol.Undo:
		if !marked {
			return false
		}
		a.Balance += w.leg(m).debit()
	case protocol.FenceOnly:
		if marked {
			return false
		}
	default:
		return false // not a write to a participant
	}
	a.Markers[m.Transfer] = false
	if m.Op.ReplaceFence || m.Op.Kind == protocol.FenceOnly {
		a.Fence = m.Token
	}
	return true
}

// prepare sets the marker, and takes a debit off the balance.
func (w *World) prepare(a *Account, m Message) bool {
	can := w.facts(&w.Version, m)
	fits := a.Fence == m.Op.Fence &&
		!can.Marker &&
		can.Open &&
		can.Currency &&
		can.Kind &&
		can.Funds &&
		can.Room
	if !fits {
		return false
	}
	a.Markers[m.Transfer] = true
	a.Balance -= w.leg(m).debit()
	return true
}
