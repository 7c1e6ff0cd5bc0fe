package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// mergedUpdate is one update statement: the writes of one or more transfers to one
// participant, all of them or none.
//
// Its prepares have pinned the same fence, and their debits are taken off the balance
// together, against one condition. Its pays, settles, clears and undos require all of
// their traces. One that replaces the fence is never together with a prepare, which
// requires the old fence. A fence-only is always alone.
type mergedUpdate struct {
	store         *Store
	calls         []*Call
	transfers     map[string]bool // once there are two: no update writes a marker twice
	prepares      bool
	alone         bool // nothing can be added
	apart         bool // it has a statement of its own
	shared        bool // it has a statement together with others
	fence         protocol.Fence
	paid          money.Amount // what the pays, settles and undos pay in
	taken         money.Amount // what the prepares take
	net           money.Amount // paid less taken
	largestCredit money.Amount // of the prepares
	token         bson.ObjectID
	replacesFence bool // by the token
	drawsFence    bool // a fence-only: the server draws the token
}

// merge puts calls into updates. They keep their order at each participant, so that
// several updates of one have statements of their own.
func (s *Store) merge(calls []*Call) []*mergedUpdate {
	updates := make([]*mergedUpdate, 0, len(calls))
	latest := make(map[collections.Subject]*mergedUpdate, len(calls))
	for _, call := range calls {
		subject := call.participant().subject
		before := latest[subject]
		if before != nil && before.add(call) {
			continue
		}
		u := s.newMergedUpdate(call)
		if before != nil {
			before.apart, u.apart = true, true
		}
		updates, latest[subject] = append(updates, u), u
	}
	return updates
}

// oneUpdateEach returns an update for each call, in a statement of its own.
func (s *Store) oneUpdateEach(calls []*Call) []*mergedUpdate {
	updates := make([]*mergedUpdate, len(calls))
	for i, call := range calls {
		updates[i] = s.newMergedUpdate(call)
		updates[i].apart = true
	}
	return updates
}

// newMergedUpdate returns the update of one call. Its sums are exact, as one amount is.
func (s *Store) newMergedUpdate(call *Call) *mergedUpdate {
	zero := money.Zero(call.participant().leg.Amount.Kind())
	fenceOnly := call.Op.Kind == protocol.FenceOnly
	special := fenceOnly || call.participant().effect != nil
	u := &mergedUpdate{
		store: s, calls: []*Call{call}, paid: zero, taken: zero, net: zero, largestCredit: zero,
		alone: special, apart: special || call.participant().apart, drawsFence: fenceOnly,
	}
	u.addAmount(call)
	if call.Op.ReplaceFence {
		u.replaceFence()
	}
	return u
}

// replaceFence draws a token for what is settled, cleared or undone.
// However often the update is sent, it sets the token only once: it removes the marker or
// done mark that it requires, which comes back only by a prepare under a later fence.
func (u *mergedUpdate) replaceFence() {
	u.replacesFence, u.token, u.apart = true, bson.NewObjectID(), true
}

// add takes a call in, unless it can't be in one statement with the others.
func (u *mergedUpdate) add(call *Call) bool {
	first := u.calls[0]
	if u.alone || call.Op.Kind == protocol.FenceOnly || u.hasTransfer(call.Attempt.Transfer.ID) ||
		call.participant().leg.Amount.Kind() != first.participant().leg.Amount.Kind() {
		return false
	}
	if call.Op.Kind == protocol.Prepare && !u.agrees(call) || call.Op.ReplaceFence && u.prepares || !u.addAmount(call) {
		return false
	}
	if call.Op.ReplaceFence && !u.replacesFence {
		u.replaceFence()
	}
	if u.transfers == nil {
		u.transfers = map[string]bool{first.Attempt.Transfer.ID: true}
	}
	u.transfers[call.Attempt.Transfer.ID] = true
	u.apart = u.apart || call.participant().apart
	u.calls = append(u.calls, call)
	return true
}

// hasTransfer reports whether one of the calls is of a transfer.
func (u *mergedUpdate) hasTransfer(id string) bool {
	if u.transfers == nil {
		return u.calls[0].Attempt.Transfer.ID == id
	}
	return u.transfers[id]
}

// agrees reports whether a prepare has the same conditions as the update's prepares.
func (u *mergedUpdate) agrees(call *Call) bool {
	if u.replacesFence {
		return false
	}
	if !u.prepares {
		return true
	}
	first := u.firstPrepare()
	return first.Op.Fence == call.Op.Fence &&
		first.currency() == call.currency() &&
		first.participant().floor.Stored.Equal(call.participant().floor.Stored)
}

// addAmount adds a call's amount to the sums. Where they would not be exact it reports
// false and changes nothing.
func (u *mergedUpdate) addAmount(call *Call) bool {
	amount := call.participant().leg.Amount
	paid, taken, largest := u.paid, u.taken, u.largestCredit
	var err error
	switch kind, credit := call.Op.Kind, amount.Sign() > 0; {
	case kind == protocol.Prepare && credit:
		if amount.Cmp(largest) > 0 {
			largest = amount
		}
	case kind == protocol.Prepare:
		taken, err = taken.Add(amount.Neg())
	case kind == protocol.Settle, kind == protocol.Pay:
		var due money.Amount
		if due, err = document.DueOnSettle(amount, call.Attempt.Transfer.Posted); err == nil {
			paid, err = paid.Add(due)
		}
	case kind == protocol.Undo && !credit:
		paid, err = paid.Add(amount.Neg())
	}
	if err != nil {
		return false
	}
	net, err := paid.Add(taken.Neg())
	if err != nil {
		return false
	}
	u.paid, u.taken, u.net, u.largestCredit = paid, taken, net, largest
	if call.Op.Kind == protocol.Prepare {
		u.prepares, u.fence = true, call.Op.Fence
	}
	return true
}

// firstPrepare returns the first prepare, or the first call where there is none.
func (u *mergedUpdate) firstPrepare() *Call {
	for _, call := range u.calls {
		if call.Op.Kind == protocol.Prepare {
			return call
		}
	}
	return u.calls[0]
}

// removes reports whether the call removes a trace of its transfer.
func (c *Call) removes() bool {
	switch c.Op.Kind {
	case protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo:
		return true
	default:
		return false
	}
}

// removed returns the trace that the call removes.
func (c *Call) removed() trace {
	if c.Op.Kind == protocol.Clear {
		return c.participant().done
	}
	return c.participant().marker
}

// removedKeys yields the keys of the traces that the update removes.
func (u *mergedUpdate) removedKeys(yield func(string) bool) {
	for _, call := range u.calls {
		if call.removes() && !yield(call.removed().key) {
			return
		}
	}
}

// sets reports whether the call sets a trace of its transfer.
func (c *Call) sets() bool { return c.Op.Kind == protocol.Prepare || c.Op.Kind == protocol.Pay }

// set returns the trace that the call sets.
func (c *Call) set() trace {
	if c.Op.Kind == protocol.Pay {
		return c.participant().done
	}
	return c.participant().marker
}

// mark returns the value of the trace that the call sets: the participant's amount.
// Nothing is paid for a part of a hold but by a settle.
func (c *Call) mark() money.Amount { return c.participant().leg.Amount }
