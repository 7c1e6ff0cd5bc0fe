package mongostore

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// bounds returns those of this participant's prepare alone.
func (p *participant) bounds() document.Bounds {
	amount := p.leg.Amount
	none := money.Zero(amount.Kind())
	if amount.Sign() > 0 {
		return p.floor.Bounds(none, none, amount)
	}
	return p.floor.Bounds(amount.Neg(), none, none)
}

// facts judges a participant's document for this work's transfer.
func (s *Store) facts(w *Attempt, p *participant, stored bson.Raw) protocol.Facts {
	view := p.view(stored)
	if p.effect != nil {
		return effectFacts(w, p, view)
	}
	if !view.Found() {
		return protocol.Facts{}
	}
	p.floor = view.Floor()
	balance := view.StoredBalance()
	p.balance = &balance
	markers := view.Markers(w.Transfer.ID)
	facts := protocol.Facts{
		Found:            true,
		Marker:           markers.Own || w.garbles(view),
		Fence:            view.Fence(),
		Open:             !view.Closed(),
		Currency:         view.HasCurrency(w.Transfer.Currency),
		BelowMarkerLimit: markers.Count < s.markerLimit,
		Funds:            true,
		WithinLimits:     true,
	}
	p.currency = nil
	if !facts.Currency {
		currency := view.Currency()
		p.currency = &currency
	}
	facts.Kind, facts.Funds, facts.WithinLimits = p.judge(balance)
	if view.Pending().Type == bson.TypeArray {
		facts.Kind, facts.Funds, facts.WithinLimits = false, true, true // a path into an array means something else
	}
	if p.unlike = ""; !facts.Kind {
		p.unlike = p.whyUnlike(view)
	}
	return facts
}

// judge compares a balance with the bounds: is it an exact number of the amount's kind, is there enough, is there room?
func (p *participant) judge(stored bson.RawValue) (kind, funds, room bool) {
	balance, err := money.FromBSON(stored)
	bounds := p.bounds()
	if err != nil || !bounds.Known || balance.Kind() != p.leg.Amount.Kind() || balance.Places() > money.MaxPlaces {
		return false, true, true
	}
	enough, room := balance.Cmp(bounds.Low) >= 0, balance.Cmp(bounds.High) <= 0
	if p.leg.Amount.Sign() > 0 {
		return true, true, enough && room
	}
	return true, enough, room
}

// garbles reports whether a document of a transfer that is decided has something else
// where the markers should be. The marker counts as being there then: it may be.
func (w *Attempt) garbles(view document.View) bool {
	decided := w.Transfer.State == protocol.Committed || w.Transfer.State == protocol.Rollback
	return decided && view.Found() && !view.HasMap()
}

// view returns a view of the participant's document.
func (p *participant) view(stored bson.Raw) document.View {
	return p.key.Collection.Fields.View(stored)
}

// legible returns those of the requests that can be performed, and answers the others.
func legible(requests []*Call) []*Call {
	if !slices.ContainsFunc(requests, func(r *Call) bool { return r.participant().garbled }) {
		return requests
	}
	var rest []*Call // and not in their place: the list is the caller's
	for _, r := range requests {
		if !r.illegible() {
			rest = append(rest, r)
		}
	}
	return rest
}

// illegible answers a request that is to remove a marker, or to replace the fence where
// there is none, if the look before has shown that nobody can tell. It is asked for again
// after the next look.
func (r *Call) illegible() bool {
	p := r.participant()
	if !p.garbled || r.Op.Kind == protocol.Prepare {
		return false
	}
	p.garbled = false
	fields := p.key.Collection.Fields
	r.answer(protocol.Failed, fmt.Errorf("%w: somebody has changed its field %q; put the map back", document.ErrGarbled, fields.Pending))
	return true
}
