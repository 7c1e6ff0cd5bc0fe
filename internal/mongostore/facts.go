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
func (p *participant) bounds() (low, high money.Amount, ok bool) {
	amount := p.leg.Amount
	none := money.Zero(amount.Kind())
	if amount.Sign() > 0 {
		return document.Bounds(p.floor, none, none, amount)
	}
	return document.Bounds(p.floor, amount.Neg(), none, none)
}

// facts judges a participant's document for this work's transfer.
func (s *Store) facts(w *Attempt, p *participant, document bson.Raw) protocol.Facts {
	if p.effect != nil {
		return effectFacts(w, p, document)
	}
	if document == nil {
		return protocol.Facts{}
	}
	p.floor = s.Fields.FloorOf(document)
	balance := document.Lookup(s.Fields.Balance)
	p.balance = &balance
	markers, marker := s.Fields.Markers(document, w.Transfer.ID)
	facts := protocol.Facts{
		Found:            true,
		Marker:           marker || p.garbles(w, document),
		Fence:            s.Fields.FenceOf(document),
		Open:             !s.Fields.IsClosed(document),
		Currency:         s.Fields.CurrencyIs(document, w.Transfer.Currency),
		BelowMarkerLimit: markers < s.markerLimit,
		Funds:            true,
		WithinLimits:     true,
	}
	p.currency = nil
	if !facts.Currency {
		currency := s.Fields.CurrencyOf(document)
		p.currency = &currency
	}
	facts.Kind, facts.Funds, facts.WithinLimits = p.judge(balance)
	if document.Lookup(s.Fields.Pending).Type == bson.TypeArray {
		facts.Kind, facts.Funds, facts.WithinLimits = false, true, true // a path into an array means something else
	}
	if p.unlike = ""; !facts.Kind {
		p.unlike = s.unlike(p, document)
	}
	return facts
}

// judge compares a balance with the bounds: is it an exact number of the amount's kind, is there enough, is there room?
func (p *participant) judge(stored bson.RawValue) (kind, funds, room bool) {
	balance, err := money.FromBSON(stored)
	low, high, ok := p.bounds()
	if err != nil || !ok || balance.Kind() != p.leg.Amount.Kind() || balance.Places() > money.MaxPlaces {
		return false, true, true
	}
	enough, room := balance.Cmp(low) >= 0, balance.Cmp(high) <= 0
	if p.leg.Amount.Sign() > 0 {
		return true, true, enough && room
	}
	return true, enough, room
}

// garbles reports whether a document of a transfer that is decided has something else
// where the markers should be. The marker counts as being there then: it may be.
func (p *participant) garbles(w *Attempt, document bson.Raw) bool {
	decided := w.Transfer.State == protocol.Committed || w.Transfer.State == protocol.Rollback
	return decided && document != nil && !p.key.Collection.Fields.HasMap(document)
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
