package deployment

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
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

// surveyed reports whether nothing is left to be asked for a purpose. That a note or a
// record is absent is known from one read, too.
func (k *knowledge) surveyed(to purpose) bool {
	return k.consulted() && (to == toRead || k.usable.Load())
}

// consulted reports whether what lies beside a collection was read, and is no hindrance.
func (k *knowledge) consulted() bool {
	return !k.noteIs(noteUnread) && !k.noteIs(noteEarlier) && !k.identityIs(identityUnread)
}

func (d *Deployment) surveyOnce(ctx context.Context, to purpose, c *collections.Collection) error {
	k := d.known[c]
	if to == toWork && !k.usable.Load() {
		missing, err := d.inspector.CheckCollection(ctx, c)
		if err != nil {
			return err
		}
		d.warnOfIndexes(ctx, missing)
		k.usable.Store(true)
	}
	if k.consulted() {
		return nil
	}
	return d.consult(ctx, to, c)
}

// consult reads what lies beside a collection, and refuses a note that differs, and a
// collection that is another one than the recorded one.
func (d *Deployment) consult(ctx context.Context, to purpose, c *collections.Collection) error {
	recorded, err := d.readRecord(ctx, c)
	if err != nil {
		return err
	}
	stored, err := d.readBeside(ctx, c)
	if err != nil {
		return err
	}
	if err := d.consultNote(ctx, to, c, stored); err != nil {
		return err
	}
	return d.compareIdentity(to, c, stored.identity, recorded)
}

// consultNote refuses a note that differs.
func (d *Deployment) consultNote(ctx context.Context, to purpose, c *collections.Collection, stored beside) error {
	ofTransfers := c == d.catalog.Originals
	if !stored.noted {
		d.known[c].setNote(noteAbsent)
		if ofTransfers {
			d.identity.Store(nil)
		}
		return nil
	}
	if !ofTransfers && d.transfersIdentity() == "" {
		// The note of the transfers is written first: it may be there by now.
		if err := d.consult(ctx, to, d.catalog.Originals); err != nil {
			return err
		}
	}
	if !ofTransfers {
		if err := d.refuseCopy(ctx, c, stored); err != nil {
			return err
		}
	}
	return d.accept(to, stored.note, c)
}

// beside is what lies beside a collection.
type beside struct {
	note     note
	noted    bool   // there is a note
	identity string // the collection's own, "" if it has none
}

// readBeside reads what a majority has stored beside a collection. A majority read is
// enough. A process that finds no note writes one, and learns by that which note stands.
// One that reads a note that was replaced a moment ago is no worse off than a process
// that began a moment before.
func (d *Deployment) readBeside(ctx context.Context, c *collections.Collection) (beside, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	ids := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{collections.NoteID, collections.IdentityID}}}}}
	found, err := wire.Sample(ctx, d.known[c].notes, ids, 2)
	switch {
	case wire.CommandCode(err) == wire.CodeInvalidNamespace:
		return beside{}, d.noRoomForNote(c)
	case err != nil:
		return beside{}, err
	}
	var all beside
	for _, stored := range found {
		if id, _ := stored.Lookup("_id").StringValueOK(); id == collections.IdentityID {
			all.identity = identityIn(stored)
		} else {
			all.note, all.noted = decodeNote(stored), true
		}
	}
	return all, nil
}

// noRoomForNote returns the error of a collection whose note can't have a collection: the
// name would be too long, or the server does not allow it.
func (d *Deployment) noRoomForNote(c *collections.Collection) error {
	return fmt.Errorf("%w: the server allows no collection for the note about %s, in %s: "+
		"give the database or the collection a shorter or plainer name",
		collections.ErrUnsupported, words.Clip(c.Namespace), words.Clip(wire.NamespaceOf(d.known[c].notes)))
}

// accept remembers a stored note that agrees, and refuses one that differs.
func (d *Deployment) accept(to purpose, stored note, c *collections.Collection) error {
	state := noteAgrees
	if to == toRaise && stored.format == document.FormatBefore {
		state, stored.format = noteEarlier, document.Format
	}
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
	d.known[c].setNote(state)
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
