package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// facts judges a participant's document for an attempt's transfer, by the conditions of
// mergedUpdate.conditions.
func (s *Store) facts(a *Attempt, p *participant, stored bson.Raw) protocol.Facts {
	view := p.view(stored)
	if p.effect != nil {
		return effectFacts(a, p, view)
	}
	if !view.Found() {
		return protocol.Facts{}
	}
	p.floor = view.Floor()
	balance := view.StoredBalance()
	p.balance = &balance
	markers := view.Markers(a.Transfer.ID)
	facts := protocol.Facts{
		Found:            true,
		Trace:            markers.Own,
		Fence:            view.Fence(),
		Open:             !view.Closed(),
		Unfrozen:         !view.Frozen(),
		Currency:         view.HasCurrency(a.Transfer.CurrencyOf(p.leg)),
		BelowMarkerLimit: markers.Count < s.markerLimit,
		Funds:            true,
		WithinLimits:     true,
	}
	p.currency = nil
	if !facts.Currency {
		currency := view.Currency()
		p.currency = &currency
	}
	facts.Kind, facts.Funds, facts.WithinLimits = p.floor.BoundsOf(p.leg.Amount).Judge(balance, p.leg.Amount)
	if view.Pending().Type == bson.TypeArray { // a path into an array means something else
		facts.Kind, facts.Funds, facts.WithinLimits = false, true, true
	}
	if p.unlike = ""; !facts.Kind {
		p.unlike = view.WhyUnlike(p.leg.Amount.Kind())
	}
	return facts
}

// effectFacts judges the document of an effect, except for its requirement.
func effectFacts(a *Attempt, p *participant, view document.View) protocol.Facts {
	facts, unmet := view.EffectFacts(&a.Transfer, p.effect.original)
	p.unmet, p.nullMap = unmet, view.Pending().Type == bson.TypeNull
	return facts
}

// view returns a view of the participant's document.
func (p *participant) view(stored bson.Raw) document.View {
	return p.subject.Collection.Fields.View(stored)
}
