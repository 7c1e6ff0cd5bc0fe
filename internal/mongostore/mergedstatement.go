package mongostore

import (
	"slices"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Write writes the update as a statement.
// A prepare and a fence-only require that there is no trace of their transfer.
// The others require the trace that they remove.
func (u *mergedUpdate) Write(m *wire.Message) {
	m.Begin("q")
	m.Value("_id", u.ID())
	if u.prepares {
		u.conditions(m)
	} else {
		u.fields().Legible(m, u.drawsFence)
		u.fields().RefuseRounding(m, u.net, u.removedKeys)
	}
	for _, call := range u.calls {
		if call.removes() {
			m.Exists(call.removed().path, true)
			continue
		}
		m.Exists(call.participant().marker.path, false)
		m.Exists(call.participant().done.path, false)
	}
	m.End()
	m.Begin("u")
	u.changes(m)
	m.End()
}

// Documents returns how many documents the statement is for.
func (u *mergedUpdate) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (u *mergedUpdate) Size() int {
	size := 512 + len(u.calls[0].participant().id.Value)
	for _, call := range u.calls {
		size += 4*len(call.participant().done.path) + 144
		if e := call.participant().effect; e != nil {
			size += e.RequiredBytes() + len(e.Set)
			if e.original {
				size += call.Attempt.Transfer.Size()
			}
		}
	}
	return size
}

// fields returns the names of the fields of the participant's document.
func (u *mergedUpdate) fields() document.Fields {
	return u.calls[0].participant().subject.Collection.Fields
}

// conditions are those under which all prepares of the update can be made, after its
// settles and undos. Store.facts judges a document by the same conditions.
func (u *mergedUpdate) conditions(m *wire.Message) {
	first := u.firstPrepare()
	fields := u.fields()
	p := first.participant()
	if p.effect != nil && p.effect.original {
		document.OriginalIs(m, fields.Fence, u.fence)
	} else {
		document.FenceIs(m, fields.Fence, u.fence)
	}
	if p.effect != nil {
		p.requireReservable(m, u.store.unreserved[fields.Pending])
		return
	}
	bounds := u.bounds()
	m.Begin(fields.Pending)
	m.NoArray()
	m.End()
	for _, flag := range []string{fields.Closed, fields.Frozen} {
		m.Begin(flag)
		m.Flag("$ne", true)
		m.End()
	}
	m.Begin(fields.Currency)
	document.CurrencyIs(m, first.currency())
	m.NoArray()
	m.End()
	m.Begin(fields.Balance)
	document.BalanceTypes(m, bounds.Low.Kind())
	m.Amount("$gte", bounds.Low)
	m.Amount("$lte", bounds.High)
	m.NoArray()
	m.End()
	if bounds.Low.Kind() == money.Decimal {
		m.Document("$expr", u.store.exactBalance)
	}
	if u.taken.Sign() != 0 {
		document.FloorIs(m, fields.Floor, first.participant().floor)
	}
}

// bounds returns the bounds of the balance within which all of the update can be done.
// Where nothing is prepared, they are those of what can be stored exactly.
func (u *mergedUpdate) bounds() document.Bounds {
	bounds := u.firstPrepare().participant().floor.Bounds(u.taken, u.paid, u.largestCredit)
	if !u.prepares {
		bounds.Low = money.MaxExact(u.paid.Kind()).Neg()
	}
	return bounds
}

// changes sets and removes the traces of all calls, and changes the balance by all of
// them. A prepared credit only leaves its marker.
// A settle or undo does not ask whether the account is open, or frozen, because the money
// is owed.
func (u *mergedUpdate) changes(m *wire.Message) {
	if u.net.Sign() != 0 {
		m.Begin("$inc")
		m.Amount(u.fields().Balance, u.net)
		m.End()
	}
	effect := u.settledEffect()
	if effect != nil && effect.original {
		u.calls[0].Attempt.Transfer.CountReversed(m)
	}
	if slices.ContainsFunc(u.calls, (*Call).sets) || u.replacesFence || effect != nil && len(wire.Elements(effect.Set)) > 0 {
		u.set(m, effect)
	}
	if u.drawsFence {
		m.Drawn(u.fields().Fence)
	}
	if slices.ContainsFunc(u.calls, (*Call).removes) {
		m.Begin("$unset")
		for _, call := range u.calls {
			if call.removes() {
				m.Text(call.removed().path, "")
			}
		}
		m.End()
	}
}

// set writes the traces, the values of a settled effect, and the new fence.
func (u *mergedUpdate) set(m *wire.Message, settled *effect) {
	m.Begin("$set")
	for _, call := range u.calls {
		switch {
		case call.Op.Kind == protocol.Prepare && call.participant().effect != nil:
			call.participant().setReservation(m)
		case call.sets():
			m.Amount(call.set().path, call.mark())
		}
	}
	if settled != nil {
		settled.WriteSet(m)
	}
	if u.replacesFence {
		m.ObjectID(u.fields().Fence, u.token)
	}
	m.End()
}

// settledEffect returns the effect that the update settles, nil if it settles none.
func (u *mergedUpdate) settledEffect() *effect {
	if kind := u.calls[0].Op.Kind; kind == protocol.Settle || kind == protocol.Pay {
		return u.calls[0].participant().effect
	}
	return nil
}
