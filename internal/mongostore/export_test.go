package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/pipeline"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Internals that the external tests use.

const (
	MaxExplained = maxExplained
)

type (
	MergedUpdate = mergedUpdate
	Participant  = participant
)

// NewMergedUpdate returns the update of one call.
func (s *Store) NewMergedUpdate(call *Call) *MergedUpdate { return s.newMergedUpdate(call) }

// Add takes a call in, unless it can't be in one statement with the others.
func (u *mergedUpdate) Add(call *Call) bool { return u.add(call) }

// Fence returns the fence that the update's prepares name.
func (u *mergedUpdate) Fence() protocol.Fence { return u.fence }

// Merge puts calls into updates.
func (s *Store) Merge(calls []*Call) []*MergedUpdate { return s.merge(calls) }

// Resolve finds out whether a call was done, if that is asked for a command of which only
// a part has matched.
func (s *Store) Resolve(ctx context.Context, from *mongo.Collection, call *Call) bool {
	one := []*statement{{updates: []*mergedUpdate{s.newMergedUpdate(call)}}}
	open := openCalls(one, wire.Updated{Short: true, Matched: true})
	return len(open) == 0 || s.resolve(ctx, from, false, open)
}

// ReadParticipants reads the calls' participants.
func (s *Store) ReadParticipants(ctx context.Context, calls []*Call, from *mongo.Collection, deciding bool) {
	s.readParticipants(ctx, calls, from, deciding)
}

// ChangeAt performs changes that a process stamps with a time and a purge.
func (s *Store) ChangeAt(ctx context.Context, calls []*Call, now, purgeAt time.Time) {
	s.changeAt(ctx, calls, transition.Stamp{Now: now, Fresh: true, PurgeAt: purgeAt})
}

// FactsOf judges a document as that of a participant.
func (s *Store) FactsOf(a *Attempt, p *Participant, stored bson.Raw) protocol.Facts {
	return s.facts(a, p, stored)
}

// KnownFences returns how many fences are known.
func (s *Store) KnownFences() int { return s.fences.Len() }

// ForgetFence forgets the fence of a participant.
func (s *Store) ForgetFence(subject collections.Subject) { s.fences.Forget(subject) }

// ForgetFences forgets all fences.
func (s *Store) ForgetFences() { s.fences = fences.New(s.catalog.Clock.Now, fences.LeastMemory) }

// Participant returns one participant.
func (a *Attempt) Participant(i int) *Participant { return &a.participants[i] }

// TakeParticipants makes the participants of another attempt this one's.
func (a *Attempt) TakeParticipants(from *Attempt) { a.participants = from.participants }

// Failure returns a refusal as it is stored.
func (a *Attempt) Failure(refusal protocol.Refusal) document.Failure { return a.failure(refusal) }

// Image returns what a stored transfer shows the protocol.
func (a *Attempt) Image(t document.Transfer) protocol.Image { return a.image(t) }

// Subject returns the participant's document.
func (p *participant) Subject() *collections.Subject { return &p.subject }

// Leg returns the participant's leg.
func (p *participant) Leg() *document.Leg { return &p.leg }

// Floor returns the floor as it was last read.
func (p *participant) Floor() *document.Floor { return &p.floor }

// Bounds returns the bounds of the participant's prepare.
func (p *participant) Bounds() document.Bounds { return p.floor.BoundsOf(p.leg.Amount) }

// Requirement is the filter of an effect's document where it has the required values.
func (p *participant) Requirement() bson.Raw { return p.effect.Requirement(p.id) }

// RequirementBytes bounds the bytes of a call's requirement.
func RequirementBytes(call *Call) int { return requirementBytes(call) }

// NoteStatement returns the statement of a stuck note.
func NoteStatement(r StuckReason, reason document.Failure) wire.Statement {
	return r.note(reason)
}

// TakeoverStatement returns the statement of a takeover.
func (a *Attempt) TakeoverStatement() (wire.Encoded, error) {
	op := protocol.Operation{Kind: protocol.Claim, Participant: protocol.NoParticipant, Claim: protocol.TakeOver}
	return wire.EncodeUpdate(a.claim(op).Statement())
}

// OwnershipStatement returns the write to a transfer that is the attempt's at epoch 1.
func (a *Attempt) OwnershipStatement() wire.Statement { return a.ownership(1, "") }

// ChangeStatement returns the statement of calls for the same change.
func ChangeStatement(calls []*Call) wire.Statement { return &change{calls: calls} }

// The forms in which updates are sent.

type Statement = statement

// Single returns the statement of one update by itself.
func (u *mergedUpdate) Single() *Statement { return &statement{updates: []*mergedUpdate{u}} }

// SharedStatement returns the statement that updates of one shape share.
func (s *Store) SharedStatement(updates ...*MergedUpdate) *Statement {
	return &statement{updates: updates, body: s.bodies[updates[0].shape()]}
}

// Shape returns what the updates of a shared statement have in common.
func (u *mergedUpdate) Shape() pipeline.Shape { return u.shape() }

// Bounds are those of the balance within which all of the update can be done.
func (u *mergedUpdate) Bounds() document.Bounds { return u.bounds() }

// SpoilBodies makes the statements that accounts share ones that no server evaluates.
func (s *Store) SpoilBodies(body bson.Raw) {
	for shape := range s.bodies {
		s.bodies[shape] = body
	}
}

// Shares reports whether updates of a collection may share a statement.
func (s *Store) Shares(ctx context.Context, l *collections.Collection) bool {
	return s.sharesStatements(ctx, l)
}
