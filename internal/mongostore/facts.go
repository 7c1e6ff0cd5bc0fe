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
	p.unmet = nil
	if !view.Found() {
		p.unmet = &document.Unmet{Missing: true}
		return protocol.Facts{Unmet: true, MayBeGone: p.effect.original}
	}
	p.nullMap = view.Pending().Type == bson.TypeNull
	markers := view.Markers(a.Transfer.ID)
	others := markers.Count
	if markers.Own == protocol.Reserved {
		others--
	}
	facts := protocol.Facts{
		Found: true, Trace: markers.Own, Fence: view.Fence(),
		Open: true, Unfrozen: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
	if p.effect.original {
		facts.Taken = others > 0
		addOriginalFacts(&facts, a, p, view)
	}
	if others > 0 && !p.effect.original || !view.HasMap() {
		facts.Unmet, p.unmet = true, view.Reservation(a.Transfer.ID)
	}
	return facts
}

// addOriginalFacts adds how a reversal compares with what is left of its original.
func addOriginalFacts(facts *protocol.Facts, a *Attempt, p *participant, view document.View) {
	facts.Fence = document.OriginalFence(facts.Fence, view.Stored.Lookup("reversedBy"))
	original, err := document.DecodeTransfer(view.Stored)
	if err != nil {
		facts.Unmet, p.unmet = true, &document.Unmet{}
		return
	}
	left, err := original.Left()
	if err != nil {
		facts.Unmet, p.unmet = true, &document.Unmet{Field: "reversed"}
		return
	}
	switch a.Transfer.CompareReversal(left) {
	case document.Nothing:
		facts.Exhausted = true
	case document.Less:
		facts.Exceeded = true
	case document.Other:
		facts.Outdated = true
	case document.Fits:
	}
}

// view returns a view of the participant's document.
func (p *participant) view(stored bson.Raw) document.View {
	return p.subject.Collection.Fields.View(stored)
}
