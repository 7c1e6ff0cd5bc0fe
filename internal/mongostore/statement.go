package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/pipeline"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// leastShared is the least number of accounts that share a statement, unless a store
	// has another one.
	leastShared = 3
	// mostShared and mostSharedBytes bound one statement.
	mostShared      = 512
	mostSharedBytes = 1 << 20
)

// statement is one update of one participant, or of many accounts, of the same shape, by
// a pipeline.
type statement struct {
	updates []*mergedUpdate
	body    bson.Raw // of the pipeline; nil: it is the statement of one update
	refused bool     // the server has ended it, and may have changed some of the accounts
}

// statements puts updates into statements. An update is apart, in a statement of its own,
// which takes the server longer,
//
//   - through a mongos, which counts a document twice that is on its way elsewhere;
//   - where the server does not evaluate a pipeline as it should;
//   - of the document of an effect, whose values are not to be evaluated;
//   - that sets a fence, which is rare;
//   - of an account that has several updates in one command, as they have an order;
//   - of an account that was refused before, by the server or by such a statement.
func (s *Store) statements(pipelines bool, updates []*mergedUpdate) []*statement {
	all := make([]*statement, 0, len(updates))
	shared := map[pipeline.Shape][]*mergedUpdate{}
	if pipelines {
		for _, u := range updates {
			if !u.apart && !s.refused.Has(u.subject()) {
				shape := u.shape()
				shared[shape] = append(shared[shape], u)
				u.shared = true
			}
		}
	}
	for shape, group := range shared {
		if len(group) < s.leastShared {
			for _, u := range group {
				u.shared = false
			}
			continue
		}
		// The server changes them in the order of their _ids: see markSuspects.
		slices.SortFunc(group, func(a, b *mergedUpdate) int { return document.CompareIDs(a.ID(), b.ID()) })
		for some := range wire.Portions(group, mostSharedBytes, (*mergedUpdate).Size) {
			for part := range slices.Chunk(some, mostShared) {
				all = append(all, &statement{updates: part, body: s.bodies[shape]})
			}
		}
	}
	for _, u := range updates {
		if !u.shared {
			all = append(all, &statement{updates: []*mergedUpdate{u}})
		}
	}
	return all
}

// sharesStatements reports whether updates of a collection may share a statement.
func (s *Store) sharesStatements(ctx context.Context, l *collections.Collection) bool {
	return l.HoldsAccounts() && !s.catalog.Routed(l.Commands) &&
		s.trials.Passed(ctx, l, s.bodies, s.catalog.Clock.Now())
}

// Write writes the statement.
func (st *statement) Write(m *wire.Message) {
	if st.body == nil {
		st.updates[0].Write(m)
		return
	}
	pipeline.Write(m, st.body, st.updates)
}

// Documents returns how many documents the statement is for.
func (st *statement) Documents() int { return len(st.updates) }

// Size guesses the bytes of the statement.
func (st *statement) Size() int {
	size := 4 << 10
	for _, u := range st.updates {
		size += u.Size()
	}
	return size
}

// subject returns the participant.
func (u *mergedUpdate) subject() collections.Subject { return u.calls[0].participant().subject }

// ID returns the participant's _id.
func (u *mergedUpdate) ID() bson.RawValue { return u.calls[0].participant().id }

// shape returns the shape of the update's statement.
func (u *mergedUpdate) shape() pipeline.Shape {
	return pipeline.Shape{
		Kind:     u.taken.Kind(),
		Prepares: u.prepares,
		Sets:     slices.ContainsFunc(u.calls, (*Call).sets),
		Removes:  slices.ContainsFunc(u.calls, (*Call).removes),
	}
}

// WriteParameters writes what the account's part of a shared statement requires and does.
func (u *mergedUpdate) WriteParameters(m *wire.Message) {
	bounds := u.bounds()
	m.Amount(pipeline.Low, bounds.Low)
	m.Amount(pipeline.High, bounds.High)
	m.Amount(pipeline.Net, u.net)
	m.BeginArray(pipeline.Removed)
	n := 0
	for key := range u.removedKeys {
		m.Text(wire.Index(n), key)
		n++
	}
	m.End()
	m.Begin(pipeline.Set)
	for _, call := range u.calls {
		if call.sets() {
			m.Amount(call.set().key, call.mark())
		}
	}
	m.End()
	if u.prepares {
		u.writeConditions(m)
	}
}

// writeConditions writes what prepares require.
func (u *mergedUpdate) writeConditions(m *wire.Message) {
	first := u.firstPrepare()
	m.BeginArray(pipeline.Absent)
	n := 0
	for _, call := range u.calls {
		if call.Op.Kind == protocol.Prepare {
			m.Text(wire.Index(n), call.participant().marker.key)
			m.Text(wire.Index(n+1), call.participant().done.key)
			n += 2
		}
	}
	m.End()
	m.Stored(pipeline.Fence, document.StoredFence(u.fence))
	m.Text(pipeline.Currency, first.currency())
	m.Flag(pipeline.Debits, u.taken.Sign() != 0)
	m.Stored(pipeline.Floor, first.participant().floor.Stored)
}
