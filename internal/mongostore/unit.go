package mongostore

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// mergedUpdate is one update statement: writes of one or more transfers to one participant, all of them or none. Its prepares have
// pinned the same fence, and their debits are taken off the balance together, against one condition. Its settles and undos require
// all of their markers.
//
// A settle or undo that replaces the fence is never in one unit with a prepare, which requires the fence as it was; and a fence-only has a
// unit of its own.
type mergedUpdate struct {
	store     *Store
	requests  []*Call
	transfers map[string]bool // once there are two: no marker is written twice by one update
	prepares  bool
	alone     bool // nothing is added any more
	fence     protocol.Fence
	paid      money.Amount // what the settles and undos pay in
	taken     money.Amount // what the prepares take
	net       money.Amount // paid less taken
	largest   money.Amount // of the credits prepared
	token     bson.ObjectID
	replaces  bool // the fence, by the token
	draws     bool // a fence-only: the server draws the token
}

// gather puts requests into units. They keep their order at each participant.
func (s *Store) gather(requests []*Call) []*mergedUpdate {
	units := make([]*mergedUpdate, 0, len(requests))
	latest := make(map[collections.Subject]*mergedUpdate, len(requests))
	for _, r := range requests {
		subject := SubjectOf(r.Attempt, r.Op)
		if u := latest[subject]; u != nil && u.add(r) {
			continue
		}
		u := s.newUnit(r)
		units, latest[subject] = append(units, u), u
	}
	return units
}

// singles returns a unit for each request.
func (s *Store) singles(requests []*Call) []*mergedUpdate {
	units := make([]*mergedUpdate, len(requests))
	for i, r := range requests {
		units[i] = s.newUnit(r)
	}
	return units
}

func (s *Store) newUnit(r *Call) *mergedUpdate {
	zero := money.Zero(r.participant().leg.Amount.Kind())
	u := &mergedUpdate{
		store: s, requests: []*Call{r}, paid: zero, taken: zero, net: zero, largest: zero,
		alone: r.Op.Kind == protocol.FenceOnly || r.participant().effect != nil,
	}
	u.count(r) // one amount added to nothing is exact
	u.draws = r.Op.Kind == protocol.FenceOnly
	if r.Op.ReplaceFence {
		u.replaceFence()
	}
	return u
}

func (r *Call) participant() *participant { return &r.Attempt.participants[r.Op.Participant] }

// replaceFence draws a token for what is settled or undone. It is set once only, however
// often it is sent: for that the marker has to be there, which is removed with it, and
// comes back for none but a prepare that names a later fence.
func (u *mergedUpdate) replaceFence() { u.replaces, u.token = true, bson.NewObjectID() }

// add takes a request in, unless it can't be in one statement with the others.
func (u *mergedUpdate) add(r *Call) bool {
	first := u.requests[0]
	if u.alone || r.Op.Kind == protocol.FenceOnly || u.has(r.Attempt.Transfer.ID) ||
		r.participant().leg.Amount.Kind() != first.participant().leg.Amount.Kind() {
		return false
	}
	if r.Op.Kind == protocol.Prepare && !u.takes(r) || r.Op.ReplaceFence && u.prepares {
		return false
	}
	if !u.count(r) {
		return false
	}
	if r.Op.ReplaceFence && !u.replaces {
		u.replaceFence()
	}
	if u.transfers == nil {
		u.transfers = map[string]bool{first.Attempt.Transfer.ID: true}
	}
	u.transfers[r.Attempt.Transfer.ID] = true
	u.requests = append(u.requests, r)
	return true
}

func (u *mergedUpdate) has(transferID string) bool {
	if u.transfers == nil {
		return u.requests[0].Attempt.Transfer.ID == transferID
	}
	return u.transfers[transferID]
}

// takes reports whether a prepare has the conditions of those that are in the unit.
func (u *mergedUpdate) takes(r *Call) bool {
	if u.replaces {
		return false
	}
	if !u.prepares {
		return true
	}
	for _, other := range u.requests {
		if other.Op.Kind == protocol.Prepare {
			return other.Op.Fence == r.Op.Fence &&
				other.Attempt.Transfer.Currency == r.Attempt.Transfer.Currency &&
				other.participant().floor.Stored.Equal(r.participant().floor.Stored)
		}
	}
	return true
}

// count adds a request's amount to the sums, and reports false, with nothing changed, if they would not be exact.
func (u *mergedUpdate) count(r *Call) bool {
	amount := r.participant().leg.Amount
	paid, taken, largest := u.paid, u.taken, u.largest
	var err error
	switch kind, credit := r.Op.Kind, amount.Sign() > 0; {
	case kind == protocol.Prepare && credit:
		if amount.Cmp(largest) > 0 {
			largest = amount
		}
	case kind == protocol.Prepare:
		taken, err = taken.Add(amount.Neg())
	case kind == protocol.Settle:
		paid, err = r.paidOnSettle(paid)
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
	u.paid, u.taken, u.net, u.largest = paid, taken, net, largest
	if r.Op.Kind == protocol.Prepare {
		u.prepares, u.fence = true, r.Op.Fence
	}
	return true
}

// paidOnSettle adds what the account is paid when the transfer is settled there: a credit. Where a part of a hold was posted it is that
// part, and the rest is paid to the account that was debited.
func (r *Call) paidOnSettle(to money.Amount) (money.Amount, error) {
	amount, posted := r.participant().leg.Amount, r.Attempt.Transfer.Posted
	switch {
	case posted == nil && amount.Sign() > 0:
		return to.Add(amount)
	case posted == nil || amount.Sign() == 0:
		return to, nil
	case amount.Sign() > 0:
		return to.Add(*posted)
	}
	rest, err := amount.Neg().Add(posted.Neg())
	if err != nil {
		return to, err
	}
	return to.Add(rest)
}

// Write writes the unit down as a statement.
func (u *mergedUpdate) Write(m *wire.Message) {
	m.Begin("q")
	m.Value("_id", u.requests[0].participant().id)
	if u.prepares {
		u.conditions(m)
	} else {
		u.requests[0].participant().key.Collection.Fields.Legible(m, u.requests[0].Op.Kind == protocol.FenceOnly)
	}
	for _, r := range u.requests {
		m.Exists(r.participant().marker, r.Op.Kind == protocol.Settle || r.Op.Kind == protocol.Undo)
	}
	m.End()
	m.Begin("u")
	u.changes(m)
	m.End()
}

func (u *mergedUpdate) Documents() int { return 1 }

func (u *mergedUpdate) Size() int {
	size := 512 + len(u.requests[0].participant().id.Value)
	for _, r := range u.requests {
		size += 2*len(r.participant().marker) + 64
		if e := r.participant().effect; e != nil {
			size += e.requiredBytes() + len(e.set)
		}
	}
	return size
}

// conditions are those under which all prepares of a unit can be made, after its settles and undos. The conditions of facts are the same.
func (u *mergedUpdate) conditions(m *wire.Message) {
	s := u.store
	first := u.firstPrepare()
	fields := first.participant().key.Collection.Fields
	document.FenceIs(m, fields.Fence, u.fence)
	if e := first.participant().effect; e != nil {
		e.requires(m, fields.Pending)
		return
	}
	bounds := first.participant().floor.Bounds(u.taken, u.paid, u.largest)
	m.Begin(s.Fields.Pending)
	m.NoArray()
	m.End()
	m.Begin(s.Fields.Closed)
	m.Flag("$ne", true)
	m.End()
	m.Begin(s.Fields.Currency)
	document.CurrencyIs(m, first.Attempt.Transfer.Currency)
	m.NoArray()
	m.End()
	m.Begin(s.Fields.Balance)
	document.BalanceTypes(m, bounds.Low.Kind())
	m.Amount("$gte", bounds.Low)
	m.Amount("$lte", bounds.High)
	m.NoArray()
	m.End()
	if bounds.Low.Kind() == money.Decimal {
		m.Document("$expr", s.exactBalance)
	}
	if u.taken.Sign() != 0 {
		document.FloorIs(m, s.Fields.Floor, first.participant().floor)
	}
}

func (u *mergedUpdate) firstPrepare() *Call {
	for _, r := range u.requests {
		if r.Op.Kind == protocol.Prepare {
			return r
		}
	}
	return u.requests[0]
}

// changes sets the markers of prepares and removes those of settles and undos; the balance changes by what all of them make. A credit only
// leaves its marker when it is prepared. Whether the account is still open is not asked of a settle or undo: the money is due.
func (u *mergedUpdate) changes(m *wire.Message) {
	fields := u.requests[0].participant().key.Collection.Fields
	if u.net.Sign() != 0 {
		m.Begin("$inc")
		m.Amount(fields.Balance, u.net)
		m.End()
	}
	effect := u.settledEffect()
	if u.prepares || u.replaces || effect != nil && len(wire.Elements(effect.set)) > 0 {
		m.Begin("$set")
		for _, r := range u.requests {
			if r.Op.Kind == protocol.Prepare {
				r.participant().mark(m)
			}
		}
		if effect != nil {
			effect.apply(m)
		}
		if u.replaces {
			m.ObjectID(fields.Fence, u.token)
		}
		m.End()
	}
	if u.draws {
		m.Drawn(fields.Fence)
	}
	if !u.clears() {
		return
	}
	m.Begin("$unset")
	for _, r := range u.requests {
		if r.Op.Kind == protocol.Settle || r.Op.Kind == protocol.Undo {
			m.Text(r.participant().marker, "")
		}
	}
	m.End()
}

// mark sets the marker of a prepare. On the document of an effect it is the only one: so the map is set as a whole, even where it was null.
func (p *participant) mark(m *wire.Message) {
	if p.effect == nil {
		m.Amount(p.marker, p.leg.Amount)
		return
	}
	pending := p.key.Collection.Fields.Pending
	m.Begin(pending)
	m.Amount(strings.TrimPrefix(p.marker, pending+"."), p.leg.Amount)
	m.End()
}

// settledEffect returns the effect that the unit settles, if it does.
func (u *mergedUpdate) settledEffect() *effect {
	if u.requests[0].Op.Kind == protocol.Settle {
		return u.requests[0].participant().effect
	}
	return nil
}

func (u *mergedUpdate) clears() bool {
	for _, r := range u.requests {
		if r.Op.Kind == protocol.Settle || r.Op.Kind == protocol.Undo {
			return true
		}
	}
	return false
}
