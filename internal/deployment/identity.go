package deployment

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// identityState is what is known of a collection's identity.
type identityState uint32

const (
	// identityUnread is the state of an identity that has to be read.
	identityUnread identityState = iota
	// identityUnrecorded means that there was no record when it was read. A process that
	// works writes one, and learns by that which record stands.
	identityUnrecorded
	// identityUnrecordable means that there was no record, and that this user has no
	// right to write one.
	identityUnrecordable
	// identityAgrees means that the collection is the one that is recorded.
	identityAgrees
)

func (k *knowledge) identityIs(wanted identityState) bool { return k.identity.Load() == uint32(wanted) }
func (k *knowledge) setIdentity(to identityState)         { k.identity.Store(uint32(to)) }

// record says which collection an address stands for, by the collection's identity. It
// lies beside the note of the transfers, so that every process that works with these
// transfers finds it:
//
//  1. A transfer to the ledger eu is committed, and its process crashes.
//  2. A process is configured with eu on another server, where a collection of the same
//     name is. It recovers the transfer, finds no marker there, and takes that as the
//     sign that the money was moved already: Success, and the money is gone.
//
// A record is about an address and a namespace. These two are what a transfer stores of
// each participant, and a process that has not both of them leaves the transfer alone. So
// a collection that is registered under another name, or a name that is given to another
// namespace, needs no record of the old one.
type record struct {
	found    bool
	identity string // "" if it says nothing that can be understood
	changes  int64  // how often it was written
}

// recordID returns the _id of the record about a collection.
func recordID(c *collections.Collection) bson.D {
	kind := "ledger"
	if c.Documents {
		kind = "documents"
	}
	return bson.D{{Key: kind, Value: c.Name}, {Key: "namespace", Value: c.Namespace}}
}

// recordText names the record about a collection in an error.
func (d *Deployment) recordText(c *collections.Collection) string {
	return fmt.Sprintf("the record of %s in %s", c.Address(), d.recordsNamespace())
}

// recordsNamespace is where the records are.
func (d *Deployment) recordsNamespace() string {
	return wire.NamespaceOf(d.known[d.catalog.Originals].notes)
}

// readRecord reads the record about a collection that a majority has stored. It is read
// before the identity: who writes both writes the identity first. In the other order, a
// process that finds no identity might then find the record of one that was drawn in
// between.
func (d *Deployment) readRecord(ctx context.Context, c *collections.Collection) (record, error) {
	if c == d.catalog.Originals {
		return record{}, nil // the note itself has the identity of the transfers
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	stored, err := wire.FindID(ctx, d.known[d.catalog.Originals].notes, recordID(c))
	if wire.NotFound(err) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	changes, _ := stored.Lookup("changes").AsInt64OK()
	return record{true, identityIn(stored), changes}, nil
}

// HasRecord reports whether a ledger was ever registered under a name.
func (d *Deployment) HasRecord(ctx context.Context, ledger string) (bool, error) {
	_, err := wire.FindOne(wire.Detached(ctx), d.known[d.catalog.Originals].notes, bson.D{{Key: "_id.ledger", Value: ledger}})
	if wire.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// identityIn returns the identity in a stored document, "" if there is none.
func identityIn(stored bson.Raw) string {
	identity, _ := stored.Lookup("identity").StringValueOK()
	return identity
}

// identityContent returns what is stored of an identity, but for _id and changes.
func identityContent(identity string) bson.D { return bson.D{{Key: "identity", Value: identity}} }

// compareIdentity refuses a collection that is another one than the recorded one. A
// collection without an identity is another one, too. A caller that only reads may read
// it all the same, and nothing is known then: it may have been restored without what lay
// beside it.
func (d *Deployment) compareIdentity(to purpose, c *collections.Collection, identity string, recorded record) error {
	k := d.known[c]
	k.found.Store(&identity)
	switch {
	case c == d.catalog.Originals:
		k.setIdentity(identityAgrees)
	case !recorded.found:
		k.setIdentity(identityUnrecorded)
	case identity == "" && to == toRead:
		k.setIdentity(identityUnread)
	case identity == "" || identity != recorded.identity:
		return d.otherCollection(c, identity)
	default:
		d.agrees(c, identity)
	}
	return nil
}

// agrees remembers a collection that is the recorded one, by its identity.
func (d *Deployment) agrees(c *collections.Collection, identity string) {
	d.known[c].setIdentity(identityAgrees)
	d.known[c].sign.set(identity, d.catalog.Clock.Now())
}

// otherCollection returns the error of a collection that is another one than the recorded
// one. What is known of it is read again at its next use: it may be adopted by then.
func (d *Deployment) otherCollection(c *collections.Collection, identity string) error {
	d.known[c].setIdentity(identityUnread)
	lost := ""
	if identity == "" {
		lost = ", or has lost its identity in " + wire.NamespaceOf(d.known[c].notes)
	}
	return fmt.Errorf("%w: this %s is another collection than the one that %s stands for, by the record in %s%s: "+
		"give this coordinator the collection on the server that the others use; "+
		"if it was moved, restored or made anew on purpose, see Coordinator.Adopt",
		collections.ErrUnsupported, c.Namespace, c.Address(), d.recordsNamespace(), lost)
}

// recordOnce gives a collection an identity unless it has one, and records it unless
// there is a record. It refuses the collection if another one was recorded meanwhile.
func (d *Deployment) recordOnce(ctx context.Context, c *collections.Collection) error {
	identity, err := d.drawIdentity(ctx, c)
	if err != nil {
		return err
	}
	stored, err := d.writeOnce(ctx, d.catalog.Originals, recordID(c), identityContent(identity), d.recordText(c))
	if err != nil {
		return err
	}
	return d.compareIdentity(toWork, c, identity, record{found: true, identity: identityIn(stored)})
}

// drawIdentity draws an identity for a collection unless it has one, and returns the one
// that stands then.
func (d *Deployment) drawIdentity(ctx context.Context, c *collections.Collection) (string, error) {
	what := "the identity of " + c.Namespace
	stored, err := d.writeOnce(ctx, c, collections.IdentityID, identityContent(newIdentity()), what)
	if err != nil {
		return "", err
	}
	if identity := identityIn(stored); identity != "" {
		return identity, nil
	}
	return "", fmt.Errorf("%w: %s, in %s, is no text: restore it, or remove the document", collections.ErrUnsupported,
		what, wire.NamespaceOf(d.known[c].notes))
}

// recordIfAllowed is recordOnce for a user who may have no right to write it. Such a
// process goes on as it would have before there were records: Setup is what a new release
// begins with, and what writes them.
func (d *Deployment) recordIfAllowed(ctx context.Context, c *collections.Collection) error {
	err := d.recordOnce(ctx, c)
	if wire.CommandCode(err) == wire.CodeUnauthorized {
		d.known[c].setIdentity(identityUnrecordable)
		return nil
	}
	return err
}

// recordAll records what is not recorded yet, for a user who must have the right to it.
func (d *Deployment) recordAll(ctx context.Context) error {
	for _, a := range d.catalog.Addresses() {
		c := d.catalog.At(a)
		if d.known[c].identityIs(identityAgrees) {
			continue
		}
		if err := d.recordOnce(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// adoptIdentity makes a collection the one that is recorded, unless the record was
// changed since it was read.
func (d *Deployment) adoptIdentity(ctx context.Context, a adoption) error {
	c := a.collection
	if c == d.catalog.Originals {
		return nil
	}
	if !a.recorded.found {
		return d.recordOnce(ctx, c)
	}
	identity, err := a.stored.identity, error(nil)
	if identity == "" {
		if identity, err = d.drawIdentity(ctx, c); err != nil {
			return err
		}
	}
	if a.recorded.identity != identity {
		update := bson.D{{Key: "$set", Value: identityContent(identity)}, countChange()}
		_, err := d.replace(ctx, d.catalog.Originals, recordID(c), a.recorded.changes, update, d.recordText(c))
		if err != nil {
			return err
		}
	}
	d.agrees(c, identity)
	return nil
}
