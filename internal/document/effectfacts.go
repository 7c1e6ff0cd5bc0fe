package document

import "github.com/mongotransfer/transfer/internal/protocol"

// EffectFacts judges the document of a transfer's effect, or the original of a reversal.
// Whether its fields have the required values is not judged.
// If it can't be reserved for that or another reason, unmet says why.
func (v View) EffectFacts(t *Transfer, original bool) (facts protocol.Facts, unmet *Unmet) {
	if !v.Found() {
		return protocol.Facts{Unmet: true, MayBeGone: original}, &Unmet{Missing: true}
	}
	markers := v.Markers(t.ID)
	others := markers.Count
	if markers.Own == protocol.Reserved {
		others--
	}
	facts = protocol.Facts{
		Found: true, Trace: markers.Own, Fence: v.Fence(),
		Open: true, Unfrozen: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
	if original {
		facts.Taken = others > 0
		unmet = v.addOriginalFacts(&facts, t)
	}
	if others > 0 && !original || !v.HasMap() {
		unmet = v.Reservation(t.ID)
	}
	facts.Unmet = unmet != nil
	return facts, unmet
}

// addOriginalFacts adds how a reversal compares with what is left of its original.
// It returns how the original is no transfer that can be reversed.
func (v View) addOriginalFacts(facts *protocol.Facts, reversal *Transfer) *Unmet {
	facts.Fence = OriginalFence(facts.Fence, v.Stored.Lookup("reversedBy"))
	original, err := DecodeTransfer(v.Stored)
	if err != nil {
		return &Unmet{}
	}
	left, err := original.Left()
	if err != nil {
		return &Unmet{Field: "reversed"}
	}
	switch reversal.CompareReversal(left) {
	case Nothing:
		facts.Exhausted = true
	case Less:
		facts.Exceeded = true
	case Other:
		facts.Outdated = true
	case Fits:
	}
	return nil
}
