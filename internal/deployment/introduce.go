package deployment

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// onceTries is how often a process tries to write a document that another one writes at
// the same time. The server refuses one of them if neither finds the other's; the next
// attempt finds it.
const onceTries = 3

// introduce writes what is missing at the given addresses. All that exists was found to
// agree. Without addresses it writes nothing: it would not know what the transfers are
// for.
//
// The note of the transfers comes first, and a collection's own note last. So a
// collection that turns out to be another one than the recorded one gets no note.
func (d *Deployment) introduce(ctx context.Context, addresses []document.Address) error {
	var unnoted, unrecorded []*collections.Collection
	for _, a := range addresses {
		c := d.catalog.At(a)
		if !d.known[c].noteIs(noteAgrees) {
			unnoted = append(unnoted, c)
		}
		if d.known[c].identityIs(identityUnrecorded) {
			unrecorded = append(unrecorded, c)
		}
	}
	if len(unnoted)+len(unrecorded) == 0 {
		return nil
	}
	for _, c := range unnoted {
		if err := d.checkBeforeFirstNote(ctx, c); err != nil {
			return err
		}
	}
	if transfers := d.catalog.Originals; !d.known[transfers].noteIs(noteAgrees) {
		if err := d.writeNote(ctx, transfers); err != nil {
			return err
		}
	}
	for _, c := range unrecorded {
		if err := d.recordIfAllowed(ctx, c); err != nil {
			return err
		}
	}
	for _, c := range unnoted {
		if err := d.writeNote(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// writeNote writes a collection's note unless there is one, and accepts the note that
// stands then. If two processes begin at once, the note of the first one stands.
func (d *Deployment) writeNote(ctx context.Context, c *collections.Collection) error {
	wanted := d.wantedNote(c)
	wanted.deployment = d.transfersIdentity()
	if c == d.catalog.Originals {
		wanted.deployment = newIdentity()
	}
	stored, err := d.writeOnce(ctx, c, collections.NoteID, wanted.document(), "the note about "+c.Namespace)
	if err != nil {
		return err
	}
	return d.accept(toWork, decodeNote(stored), c)
}

// writeOnce writes a document beside a collection unless it is there, and returns the one
// that stands then.
//
// The write counts, because a server acknowledges a write that changes nothing without
// asking the others: an old primary that was cut off might answer with a document that
// nobody else has.
func (d *Deployment) writeOnce(ctx context.Context, beside *collections.Collection, id any, content bson.D, what string) (bson.Raw, error) {
	notes := d.known[beside].notes
	update := bson.D{{Key: "$setOnInsert", Value: content}, countChange()}
	var err error
	for range onceTries {
		var after bson.Raw
		var result protocol.Result
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		after, result, err = wire.Upsert(limited, notes, bson.D{{Key: "_id", Value: id}}, update)
		cancel()
		switch {
		case result == protocol.Applied:
			return after, nil
		case wire.CommandCode(err) == wire.CodeInvalidNamespace:
			return nil, d.noRoomForNote(beside)
		case wire.CommandCode(err) == wire.CodeDiffersInCase:
			return nil, fmt.Errorf("%w: the server has another database whose name differs from that of %s in case alone: "+
				"name the database as it is there, or give it another name: %w",
				collections.ErrUnsupported, words.Clip(beside.Namespace), wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes)))
		case result == protocol.Failed && wire.CommandCode(err) != wire.CodeDuplicateKey:
			return nil, fmt.Errorf("%w: %s can't be stored: %w",
				collections.ErrUnsupported, what, wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes)))
		case result == protocol.NotMatched: // an upsert always matches
			return nil, fmt.Errorf("%w: the server has not stored %s", collections.ErrUnsupported, what)
		case result != protocol.Failed:
			return nil, wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes))
		}
	}
	return nil, wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes))
}

// newIdentity draws an identity, of the transfers or of a collection of participants.
func newIdentity() string { return bson.NewObjectID().Hex() }

// countChange is the part of an update that counts how often a document was written.
func countChange() bson.E {
	return bson.E{Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}}
}
