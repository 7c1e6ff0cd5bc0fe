package deployment

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// noteTries is how often a process tries to write a note that another one writes at the
// same time. The server refuses one of them if neither finds the other's note; the next
// attempt finds it.
const noteTries = 3

// introduce writes the notes that are missing at the given addresses, that of the
// transfers first. All existing notes were found to agree. Without addresses it writes
// nothing: it would not know what the transfers are for.
func (d *Deployment) introduce(ctx context.Context, addresses []document.Address) error {
	var missing []*collections.Collection
	for _, a := range addresses {
		if c := d.catalog.At(a); !d.known[c].noteIs(noteAgrees) {
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, c := range missing {
		if err := d.checkBeforeFirstNote(ctx, c); err != nil {
			return err
		}
	}
	if transfers := d.catalog.Originals; !d.known[transfers].noteIs(noteAgrees) {
		missing = append([]*collections.Collection{transfers}, missing...)
	}
	for _, c := range missing {
		if err := d.writeNote(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// writeNote writes a collection's note unless there is one, and accepts the note that
// stands then. If two processes begin at once, the note of the first one stands. The
// write counts, because a server acknowledges a write that changes nothing without asking
// the others: an old primary that was cut off might answer with a note that nobody else
// has.
func (d *Deployment) writeNote(ctx context.Context, c *collections.Collection) error {
	notes := d.known[c].notes
	wanted := d.wantedNote(c)
	wanted.deployment = d.transfersIdentity()
	if c == d.catalog.Originals {
		wanted.deployment = newIdentity()
	}
	update := bson.D{{Key: "$setOnInsert", Value: wanted.document()}, countChange()}
	var err error
	for range noteTries {
		var after bson.Raw
		var result protocol.Result
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		after, result, err = wire.Upsert(limited, notes, bson.D{{Key: "_id", Value: collections.NoteID}}, update)
		cancel()
		switch {
		case result == protocol.Applied:
			return d.accept(decodeNote(after), c)
		case wire.CommandCode(err) == wire.CodeInvalidNamespace:
			return d.noRoomForNote(c)
		case result == protocol.Failed && wire.CommandCode(err) != wire.CodeDuplicateKey:
			return fmt.Errorf("%w: the note about %s can't be stored: %w",
				collections.ErrUnsupported, c.Namespace, wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes)))
		case result == protocol.NotMatched: // an upsert always matches
			return fmt.Errorf("%w: the server has not stored the note about %s", collections.ErrUnsupported, c.Namespace)
		case result != protocol.Failed:
			return wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes))
		}
	}
	return wire.ServerErrorOf(err, "insert", wire.NamespaceOf(notes))
}

// newIdentity draws an identity for the transfers.
func newIdentity() string { return bson.NewObjectID().Hex() }

// countChange is the part of an update that counts how often a note was written.
func countChange() bson.E {
	return bson.E{Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}}
}
