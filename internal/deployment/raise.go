package deployment

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// raiseNotes raises the notes of the format before to that of this release.
// All of them were found to agree in everything else.
// From then on a process of the earlier release that starts is refused, and so is one
// that runs, at its first use of another collection.
// The note of the transfers is the first, as each process reads that one.
//
// Only Setup does this, because somebody decides when it is called.
// A process that moves money would do it as soon as the first one of this release starts,
// for whatever reason, and no process of the earlier release could start again.
func (d *Deployment) raiseNotes(ctx context.Context) error {
	for _, c := range d.catalog.All() {
		if !d.known[c].noteIs(noteEarlier) {
			continue
		}
		if err := d.raiseNote(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// raiseNote raises a note, unless another process has done so since it was read.
// That may be one of a later release: its format is not lowered.
func (d *Deployment) raiseNote(ctx context.Context, c *collections.Collection) error {
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	notes := d.known[c].notes
	earlier := bson.D{{Key: "_id", Value: collections.NoteID}, {Key: "format", Value: int64(document.FormatBefore)}}
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: int64(document.Format)}}}, countChange()}
	after, result, err := wire.FindAndModify(limited, notes, earlier, update)
	switch result {
	case protocol.Applied:
		return d.accept(toWork, decodeNote(after), c)
	case protocol.NotMatched:
		return d.consult(ctx, toWork, c)
	default:
		return wire.ServerErrorOf(err, "update", wire.NamespaceOf(notes))
	}
}
