package conformance

import (
	"encoding/binary"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// outsider is the World's number of a reversal that is none of the scene's.
const outsider = 99

// latestID returns the ID of the reversal of a number; nil for none.
func latestID(latest int) any {
	switch latest {
	case 0:
		return nil
	case outsider:
		return "an outsider"
	}
	return transferIDs()[latest-1]
}

// drawReversals makes the transfers about the document reversals of a part of it, from
// alice to bob.
func (s *scene) drawReversals(t *rapid.T) {
	for i, legs := range s.plans {
		units := max(legs[0].Amount, -legs[0].Amount)
		s.plans[i] = []simulate.Leg{{Account: 0, Amount: -units}, {Account: 1, Amount: units}}
		if oneOf(t, "a reversal", true, true, true, false) {
			s.plans[i] = append(s.plans[i], simulate.Leg{Account: paperAt, MayBeGone: true, Takes: units})
		}
	}
}

// drawOriginal draws what the original of reversals has moved: from bob to alice.
func (s *scene) drawOriginal(t *rapid.T, p *paper) {
	p.whole, p.coin = oneOf[int64](t, "the original has moved", 40_000, 100_000), s.coin
	for i, units := range []int64{p.whole, -p.whole} {
		leg := document.Leg{Ledger: ledger(s.accounts[i].eu), Account: accountIDs()[i], Amount: s.coin.amount(units)}
		p.legs, p.keys[i] = append(p.legs, leg), leg.ReversedKey()
	}
}

// enough is what all transfers of a scene take back together, at most.
const enough = 100 * simulate.MaxTransfers

// dressOriginal draws the stored fields of an original: what it has moved, its state, and
// what reversals have moved so far.
func (p *paper) dressOriginal(t *rapid.T, a *given) {
	a.Value, a.Latest, a.Room = 0, 0, p.whole
	state := "Success"
	if oneOf(t, "is", "a success", "a success", "a success", "none") == "none" {
		a.Value, state = unmet, oneOf(t, "state", "Committed", "Fail")
	}
	taken := oneOf[int64](t, "reversed before", 0, 0, 0, 100, p.whole-1, p.whole)
	if p.whole-taken < enough {
		a.Value, state = unmet, "Fail" // no execution that sees this prepares, so nothing is to match
	}
	a.fields = append(field("state", state), field("legs", p.legs)...)
	switch {
	case taken == p.whole:
		a.Latest, a.Room = outsider, 0
		a.fields = append(a.fields, field("reversedBy", latestID(outsider))...)
		if oneOf(t, "counted", true, false) {
			a.fields = append(a.fields, field("reversed", p.counts(a.Room))...)
		}
	case taken > 0:
		a.Latest, a.Room = outsider, p.whole-taken
		a.fields = append(a.fields, field("reversedBy", latestID(outsider))...)
		a.fields = append(a.fields, field("reversed", p.counts(a.Room))...)
	}
	a.pending = oneOf[any](t, "no markers", nil, bson.D{}, bson.Null{})
	if oneOf(t, "markers", "a map", "a map", "a map", "none") == "none" {
		a.Value, a.pending = unmet, oneOf[any](t, "in place of markers", bson.A{}, bson.A{bson.D{}}, "text", 1)
	}
}

// counts is what an original counts as reversed where so much is left.
func (p *paper) counts(room int64) bson.D {
	taken := p.whole - room
	return bson.D{{Key: p.keys[0], Value: p.coin.amount(-taken).Value()}, {Key: p.keys[1], Value: p.coin.amount(taken).Value()}}
}

// countedNow describes what a document counts as reversed; "" where it counts nothing.
func countedNow(counted bson.Raw) string {
	var list []string
	elements, _ := counted.Elements()
	for _, e := range elements {
		list = append(list, e.Key()+": "+number(e.Value()))
	}
	return inOrder(list)
}

// isOriginal reports whether an operation is at the original of a reversal.
func isOriginal(w *mongostore.Attempt, op protocol.Operation) bool {
	return op.Participant >= 0 && w.Transfer.Reverses != "" && op.Participant == w.Participants()-1
}

// originalToStore returns what stands for an original's fence for the server.
func (r renaming) originalToStore(model protocol.Fence) protocol.Fence {
	fence, after, ok := strings.Cut(string(model), " after ")
	if !ok { // of an account
		return document.OriginalFence(r.toStore("of an account: "+model), bson.RawValue{})
	}
	latest := 0
	_, _ = fmt.Sscan(after, &latest)
	return document.OriginalFence(r.toStore(protocol.Fence(fence)), raw(latestID(latest)))
}

// originalToModel returns the model's name of what stands for an original's fence.
func (r renaming) originalToModel(server protocol.Fence) protocol.Fence {
	if len(server) < 4 {
		return r.toModel(server)
	}
	size := binary.BigEndian.Uint32([]byte(server[:4]))
	for latest := range outsider + 1 {
		if latest > simulate.MaxTransfers && latest < outsider {
			continue
		}
		if expected := fenceOf(raw(latestID(latest))); expected == server[4:4+size] {
			return protocol.Fence(fmt.Sprintf("%s after %d", r.toModel(server[4+size:]), latest))
		}
	}
	return "unheard of: " + server
}
