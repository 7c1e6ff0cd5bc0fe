package deployment

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// survey makes sure, once, that a collection can be used, and that its note, if there is
// one, says what this process would write. The transfers are surveyed before the others.
func (d *Deployment) survey(ctx context.Context, to purpose, c *collections.Collection) error {
	k := d.known[c]
	if k.surveyed(to) {
		return nil
	}
	now := d.catalog.Clock.Now
	return k.surveying.Once(ctx, now, func() bool { return k.surveyed(to) }, func() error {
		err := d.surveyOnce(ctx, to, c)
		var unanswered *wire.ServerError
		if err != nil && ctx.Err() == nil && errors.As(err, &unanswered) && unanswered.Code == 0 {
			k.surveying.Failures.Record(now(), err)
		}
		return err
	})
}

// surveyed reports whether nothing is left to be asked for a purpose. That a note is
// absent is known from one read, too.
func (k *knowledge) surveyed(to purpose) bool {
	return !k.noteIs(noteUnread) && (to == toRead || k.usable.Load())
}

func (d *Deployment) surveyOnce(ctx context.Context, to purpose, c *collections.Collection) error {
	k := d.known[c]
	if to == toWork && !k.usable.Load() {
		if err := d.inspector.CheckCollection(ctx, c); err != nil {
			return err
		}
		k.usable.Store(true)
	}
	if !k.noteIs(noteUnread) {
		return nil
	}
	return d.consult(ctx, c)
}

// consult reads a collection's note, and refuses one that differs.
func (d *Deployment) consult(ctx context.Context, c *collections.Collection) error {
	stored, found, err := d.readNote(ctx, c)
	if err != nil {
		return err
	}
	ofTransfers := c == d.catalog.Originals
	if !found {
		d.known[c].setNote(noteAbsent)
		if ofTransfers {
			d.identity.Store(nil)
		}
		return nil
	}
	if !ofTransfers && d.transfersIdentity() == "" {
		// The note of the transfers is written first: it may be there by now.
		if err := d.consult(ctx, d.catalog.Originals); err != nil {
			return err
		}
	}
	return d.accept(stored, c)
}

// readNote reads the note that a majority has stored, and whether there is one. A
// majority read is enough. A process that finds no note writes one, and learns by that
// which note stands. One that reads a note that was replaced a moment ago is no worse off
// than a process that began a moment before.
func (d *Deployment) readNote(ctx context.Context, c *collections.Collection) (stored note, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	document, err := wire.FindID(ctx, d.known[c].notes, collections.NoteID)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return note{}, false, nil
	case wire.CommandCode(err) == wire.CodeInvalidNamespace:
		return note{}, false, d.noRoomForNote(c)
	case err != nil:
		return note{}, false, err
	}
	return decodeNote(document), true, nil
}

// noRoomForNote returns the error of a collection whose note can't have a collection: the
// name would be too long, or the server does not allow it.
func (d *Deployment) noRoomForNote(c *collections.Collection) error {
	return fmt.Errorf("%w: the server allows no collection for the note about %s, in %s: "+
		"give the database or the collection a shorter or plainer name",
		collections.ErrUnsupported, words.Clip(c.Namespace), words.Clip(wire.NamespaceOf(d.known[c].notes)))
}

// accept remembers a stored note that agrees, and refuses one that differs.
func (d *Deployment) accept(stored note, c *collections.Collection) error {
	ofTransfers := c == d.catalog.Originals
	wanted := d.wantedNote(c)
	if !ofTransfers {
		wanted.deployment = d.transfersIdentity()
	}
	if err := wanted.requireAgreement(stored, c); err != nil {
		return err
	}
	if ofTransfers {
		d.identity.Store(&stored.deployment)
	}
	d.known[c].setNote(noteAgrees)
	return nil
}

// transfersIdentity returns the identity of the transfers, "" while they have no note. A
// note about accounts always names one: it is written later.
func (d *Deployment) transfersIdentity() string {
	if known := d.identity.Load(); known != nil {
		return *known
	}
	return ""
}
