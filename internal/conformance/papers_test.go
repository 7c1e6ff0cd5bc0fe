package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
	"github.com/mongotransfer/transfer/internal/wire"
)

// orders is the name of a collection of documents that effects change.
const orders = "orders"

// original is the ID of the transfer that reversals concern.
const original = "the original"

// unmet is the World's value of a document that doesn't meet an effect's requirement.
const unmet = -1

// paper is the document that the scene's effects or reversals concern.
// All of them have the same requirement. It takes the place of carol's account.
type paper struct {
	reversed bool // it is a transfer, and the effect is a reversal
	id       any  // as it is requested
	storedID any  // the same for the server
	require  bson.D
	as       []bson.D // fields of documents that are as required
	other    []bson.D // fields of documents that are not
	set      bson.D   // besides status, which names who has set it

	// Of the original of reversals: what it has moved, and under which keys it counts
	// what was reversed.
	whole int64
	legs  bson.A
	keys  [2]string
	coin  coin
}

// paperAt is the index of the document among the accounts.
const paperAt = simulate.MaxAccounts - 1

func field(name string, value any) bson.D { return bson.D{{Key: name, Value: value}} }

// papers returns the documents that effects may concern.
// A field that must have no value may be missing.
// Numbers are compared by value.
// An array does not match because one of its elements does.
// A value that looks like an operator, or a pattern, is a value like any other.
func papers() []paper {
	status := func(values ...any) []bson.D {
		var all []bson.D
		for _, value := range values {
			all = append(all, field("status", value))
		}
		return all
	}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	half, _ := bson.ParseDecimal128("0.5")
	return []paper{
		{
			id: "order", require: field("status", "open"),
			as: status("open"), other: append(status("closed", 1, nil, bson.A{"x", "open"}, bson.A{"open"}), bson.D{}),
		},
		{
			id: int64(7), storedID: 7.0, require: field("status", nil),
			as: append(status(nil), bson.D{}), other: status("open", 0, false, bson.D{}, bson.A{nil}),
		},
		{
			id: int64(1 << 60), storedID: float64(1 << 60), require: field("status", 5), as: status(int64(5), 5.0),
			other: append(status("5", 6, true, bson.A{5}, bson.A{bson.A{5}}), bson.D{}),
		},
		{id: bson.ObjectID{7}, require: field("status", half), as: status(0.5, half), other: status(0, "0.5", float32(0.25))},
		{
			id: bson.D{{Key: "a", Value: 1}, {Key: "b", Value: "x"}}, storedID: bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: "x"}},
			require: field("status", bson.A{1, 2}),
			as:      status(bson.A{1, 2}), other: status(1, bson.A{2, 1}, bson.A{1, 2, 3}, bson.A{bson.A{1, 2}, 3}, bson.A{bson.A{1, 2}}),
		},
		{
			id: at, require: field("status", bson.D{{Key: "$gt", Value: ""}}), as: status(bson.D{{Key: "$gt", Value: ""}}),
			other: status("open", bson.D{}, bson.D{{Key: "$gt", Value: "a"}}),
		},
		{
			id: bson.Binary{Subtype: 4, Data: make([]byte, 16)}, require: field("status", bson.Regex{Pattern: "^o"}),
			as: status(bson.Regex{Pattern: "^o"}), other: status("open", "^o", bson.Regex{Pattern: "^o", Options: "i"}),
		},
		{
			id: true, require: bson.D{{Key: "status", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "due", Value: at}},
			as: []bson.D{{{Key: "due", Value: at}, {Key: "status", Value: bson.D{{Key: "a", Value: 1.0}}}}},
			other: append(status(bson.D{{Key: "a", Value: 1}}),
				bson.D{{Key: "due", Value: at}, {Key: "status", Value: bson.D{{Key: "a", Value: 2}}}},
				bson.D{{Key: "due", Value: bson.Timestamp{T: 1}}, {Key: "status", Value: bson.D{{Key: "a", Value: 1}}}}),
		},
		{
			reversed: true, id: original,
		},
	}
}

// drawPaper draws the document and its stored fields.
func (s *scene) drawPaper(t *rapid.T) given {
	all := papers()
	p := all[len(all)-1]
	if rapid.IntRange(0, 2).Draw(t, "a reversal") > 0 {
		p = rapid.SampledFrom(all[:len(all)-1]).Draw(t, "document")
	}
	if p.storedID == nil {
		p.storedID = p.id
	}
	if !p.reversed {
		p.set = oneOf(t, "set besides", nil, field("paid", true), field("paid", bson.D{{Key: "$inc", Value: 1}}), bson.D{
			{Key: "paid", Value: nil}, {Key: "Grüße $", Value: bson.A{bson.A{}, 1.5}},
		})
	}
	if p.reversed {
		s.drawOriginal(t, &p)
	}
	s.paper = &p
	a := given{paper: &p}
	s.drawFence(t, &a)
	a.Missing = oneOf(t, "missing", false, false, false, false, true)
	p.dress(t, &a)
	return a
}

// dress draws the stored fields: they meet the requirement or not, another transfer has
// reserved the document, or its map of markers was replaced by something else.
func (p *paper) dress(t *rapid.T, a *given) {
	if p.reversed {
		p.dressOriginal(t, a)
		return
	}
	a.fields, a.pending, a.Value = rapid.SampledFrom(p.as).Draw(t, "as required"), nil, 0
	switch oneOf(t, "stands", "as required", "as required", "as required", "otherwise", "reserved") {
	case "otherwise":
		a.fields, a.Value = rapid.SampledFrom(p.other).Draw(t, "not as required"), unmet
	case "reserved":
		a.Value = unmet
		a.pending = oneOf[any](t, "reserved by", bson.D{{Key: "another", Value: int64(0)}}, bson.A{}, bson.A{bson.D{}}, "text", 1)
	default:
		a.pending = oneOf[any](t, "no markers", nil, bson.D{}, bson.Null{})
	}
}

// drawEffects draws transfers between alice and bob that also change the document, or do
// nothing else.
func (s *scene) drawEffects(t *rapid.T) {
	if s.paper.reversed {
		s.drawReversals(t)
		return
	}
	effect := simulate.Leg{Account: paperAt}
	for i, legs := range s.plans {
		switch oneOf(t, "on the document", "too", "too", "too", "not at all", "and no money") {
		case "too":
			s.plans[i] = append(legs, effect)
		case "and no money":
			s.plans[i] = []simulate.Leg{effect}
		}
	}
}

// place returns the name of a participant in a refusal.
func (s scene) place(at int) string {
	switch {
	case s.paper == nil || at != paperAt:
		return ledger(s.accounts[at].eu) + "/" + accountIDs()[at]
	case s.paper.reversed:
		return "transfers/" + original
	}
	id, _ := document.EncodeDocumentID(s.paper.id)
	return orders + "/" + document.IDText(id)
}

// sets returns what a transfer sets.
func (p *paper) sets(transfer int) bson.D {
	return append(field("status", "by "+transferIDs()[transfer]), p.set...)
}

// paperDocument returns the document as a check finds it.
func (a given) paperDocument() bson.D {
	d := bson.D{{Key: "_id", Value: a.paper.storedID}, {Key: "note", Value: "kept"}}
	if a.pending != nil {
		d = append(d, bson.E{Key: "pending", Value: a.pending})
	}
	if a.fence.Type != 0 {
		d = append(d, bson.E{Key: "fence", Value: a.fence})
	}
	if a.paper.reversed {
		d = append(d, bson.E{Key: "lastModified", Value: longAgo()})
	}
	return append(d, a.fields...)
}

// addEffects adds to a transfer of the scene its effects.
func (b *bank) addEffects(t *document.Transfer, i int) {
	p := b.scene.paper
	if p == nil || !slices.ContainsFunc(b.scene.plans[i], onPaper) {
		return
	}
	if p.reversed {
		t.Reverses, t.Part = original, true
		return
	}
	id, err := document.EncodeDocumentID(p.id)
	require.NoError(b.t, err)
	t.Effects = []document.Effect{{
		Documents: orders, Namespace: wire.NamespaceOf(b.orders()), ID: id, Require: encode(p.require), Set: encode(p.sets(i)),
	}}
}

func onPaper(leg simulate.Leg) bool { return leg.Amount == 0 }

// storedPaper returns the document as it is stored according to the model.
func (m *model) storedPaper() account {
	a, p := &m.Accounts[paperAt], m.scene.paper
	if a.Missing {
		return account{}
	}
	document := m.paperNow.paperDocument()
	var set bson.D
	switch {
	case a.Value > 0:
		set = p.sets(a.Value - 1)
	case a.Latest > 0 && a.Latest != outsider:
		set = append(field("reversedBy", latestID(a.Latest)), field("reversed", p.counts(a.Room))...)
	}
	for _, e := range set {
		document = slices.DeleteFunc(document, func(other bson.E) bool { return other.Key == e.Key })
		document = append(document, e)
	}
	encoded := encode(document)
	stored := account{There: true, Balance: number(bson.RawValue{}), Fence: a.Fence, Rest: rest(encoded), Pending: pendingOf(encoded)}
	stored.Reversed = countedNow(encoded.Lookup("reversed").Value)
	var markers []string
	for t := range m.Plans {
		if a.Traces[t] != protocol.NoTrace {
			markers = append(markers, traceKey(t, a.Traces[t])+": "+money.Zero(money.Whole).Canonical())
		}
	}
	if len(markers) > 0 {
		stored.Pending = inOrder(markers)
	}
	return stored
}

// outsidePaper changes the document as no execution does.
// It doesn't change it while it is reserved. Done marks reserve nothing: they stay.
func (c *check) outsidePaper() {
	a := &c.model.Accounts[paperAt]
	switch {
	case a.Missing:
		c.bank.put(paperAt, c.gone[paperAt])
		a.Missing = false
		defer c.seeAll()
	case oneOf(c.t, "the document is", "deleted", "written", "written") == "deleted":
		a.Missing, c.gone[paperAt] = true, c.bank.remove(paperAt)
	case slices.Contains(a.Traces[:], protocol.Reserved):
		return
	case slices.Contains(a.Traces[:], protocol.Done):
		c.rewritePaper()
	default:
		now := &c.model.paperNow
		c.bank.names.meet(a.Fence, fenceOf(c.bank.read(paperAt).Lookup("fence")))
		now.fence, now.Fence = c.bank.read(paperAt).Lookup("fence"), a.Fence
		c.model.scene.paper.dress(c.t, now)
		a.Value, a.Room, a.Latest = now.Value, now.Room, now.Latest
		c.bank.replace(paperAt, now.paperDocument())
	}
	c.t.Log("the document is changed from outside")
	c.model.changed()
	c.sameDocuments(nil)
}

// rewritePaper writes the fields that the requirement is about anew, as they have to be,
// and leaves the done marks.
func (c *check) rewritePaper() {
	a, now := &c.model.Accounts[paperAt], &c.model.paperNow
	marks := c.bank.read(paperAt).Lookup("pending")
	c.bank.names.meet(a.Fence, fenceOf(c.bank.read(paperAt).Lookup("fence")))
	now.fence, now.Fence = c.bank.read(paperAt).Lookup("fence"), a.Fence
	if p := c.model.scene.paper; p.reversed {
		now.fields, now.pending = append(field("state", "Success"), field("legs", p.legs)...), nil
		now.Room, now.Latest = p.whole, 0
	} else {
		now.fields, now.pending = rapid.SampledFrom(p.as).Draw(c.t, "as required"), nil
	}
	now.Value = 0
	a.Value, a.Room, a.Latest = 0, now.Room, now.Latest
	c.bank.replace(paperAt, append(now.paperDocument(), bson.E{Key: "pending", Value: marks}))
}

// nullRow is the row of the prepares for which the document's map was null when it was
// read, and is not any more, or the other way round.
func nullRow(result protocol.Result) string {
	return fmt.Sprintf("Prepare at a document whose map is null or not, unlike when it was read: %s", result)
}

// hasNull reports whether null is stored in place of the document's map of markers.
func (m *model) hasNull() bool {
	_, is := m.paperNow.pending.(bson.Null)
	return is && m.Accounts[paperAt].Traces == [simulate.MaxTransfers]protocol.Trace{}
}

// seeNull remembers whether a read of the document shows null in place of the map.
func (m *model) seeNull(message simulate.Message) {
	if op := message.Op; op.Participant != protocol.NoParticipant && reads(op.Kind) &&
		onPaper(m.leg(message)) && !m.Accounts[paperAt].Missing {
		m.nulls[place{message.Owner, op.Participant}] = m.hasNull()
	}
}

// outdatedNull performs a prepare at a document where that has changed since it was read.
// A marker can't be added to null, and a null that was there isn't replaced where
// something else is now.
func (m *model) outdatedNull(message simulate.Message) (result protocol.Result, outdated bool) {
	if message.Op.Kind != protocol.Prepare || !onPaper(m.leg(message)) {
		return 0, false
	}
	expected := m.nulls[place{message.Owner, message.Op.Participant}]
	trial := *m.World
	if expected == m.hasNull() || trial.Perform(message).Result != protocol.Applied {
		return 0, false
	}
	if expected {
		return protocol.NotMatched, true
	}
	return protocol.Failed, true
}

// turnNull puts null in place of the document's empty map of markers, or removes it.
func (c *check) turnNull() {
	a, now := &c.model.Accounts[paperAt], &c.model.paperNow
	if a.Missing || a.Value != 0 || a.Latest != now.Latest || a.Traces != [simulate.MaxTransfers]protocol.Trace{} {
		return
	}
	c.bank.names.meet(a.Fence, fenceOf(c.bank.read(paperAt).Lookup("fence")))
	now.fence, now.Fence = c.bank.read(paperAt).Lookup("fence"), a.Fence
	if c.model.hasNull() {
		now.pending = nil
	} else {
		now.pending = bson.Null{}
	}
	c.bank.replace(paperAt, now.paperDocument())
	c.model.changed()
}
