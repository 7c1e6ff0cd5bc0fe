package deployment

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Declared is what the note of the transfers, and the records beside it, say of a
// deployment. A tool that works with deployments of others takes its configuration from
// it, and a [Deployment] of this configuration checks that against the notes as it does
// any other.
type Declared struct {
	// Events are the kinds of events that are delivered.
	Events []string
	// Names are the names that were recorded.
	Names []DeclaredName
}

// DeclaredName is a name under which a collection was registered.
type DeclaredName struct {
	// Documents says that effects change its documents, which are no accounts.
	Documents bool
	// Name is "" for the accounts of the default ledger.
	Name string
	// Namespace is the database and the collection.
	Namespace string
	// Here says that the collection of this namespace on the transfers' server is the one
	// that was recorded.
	Here bool
}

// address returns what the collection was registered as.
func (n DeclaredName) address() document.Address {
	return document.Address{Documents: n.Documents, Name: n.Name}
}

// String names the collection in a text.
func (n DeclaredName) String() string { return n.address().String() + " in " + words.Clip(n.Namespace) }

// DeclaredAccounts is what the note about a collection of accounts says.
type DeclaredAccounts struct {
	// Transfers is the namespace of the transfers.
	Transfers string
	// Fields are the names of the fields.
	Fields document.Fields
	// ObjectIDs says that account IDs are stored as ObjectIds.
	ObjectIDs bool
}

// ReadDeclared reads what is declared beside a collection of transfers, and whether there
// is a note. It needs the right to read that, and the identities of the collections on
// the same server: one that it may not read is not Here.
func ReadDeclared(ctx context.Context, transfers *mongo.Collection) (d Declared, found bool, err error) {
	notes := wire.ForCommands(collections.NoteCollection(transfers))
	stored, err := wire.FindID(ctx, notes, collections.NoteID)
	if wire.NotFound(err) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d.Events = decodeNote(stored).events
	records, err := readRecords(ctx, notes)
	if err != nil {
		return d, true, err
	}
	for _, record := range records {
		n, ok := nameOf(record)
		if !ok {
			continue
		}
		if n.Here, err = isHere(ctx, transfers.Database().Client(), n.Namespace, identityIn(record)); err != nil {
			return d, true, err
		}
		d.Names = append(d.Names, n)
	}
	return d, true, nil
}

// readRecords reads the records that lie beside the note of the transfers.
func readRecords(ctx context.Context, notes *mongo.Collection) (records []bson.Raw, err error) {
	err = wire.FindAll(ctx, notes, bson.D{{Key: "_id", Value: bson.D{{Key: "$type", Value: "object"}}}}, &records)
	return records, err
}

// LeftOut returns the recorded names whose collections this process does not have: it
// reads nothing there. A collection that it has under another name is none of them. It
// returns nothing to a user who may not read the records.
func (d *Deployment) LeftOut(ctx context.Context) ([]DeclaredName, error) {
	ctx, cancel := context.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	records, err := readRecords(ctx, d.known[d.catalog.Originals].notes)
	if wire.Denied(err) != nil {
		return nil, nil
	}
	var left []DeclaredName
	for _, record := range records {
		if n, ok := nameOf(record); ok && !d.has(n, identityIn(record)) {
			left = append(left, n)
		}
	}
	return left, err
}

// has reports whether a collection is registered as it was recorded, or under another
// name.
func (d *Deployment) has(n DeclaredName, identity string) bool {
	for _, c := range d.catalog.All() {
		known := d.known[c].found.Load()
		same := known != nil && *known != "" && *known == identity
		if same || c != d.catalog.Originals && c.Address() == n.address() && c.Namespace == n.Namespace {
			return true
		}
	}
	return false
}

// nameOf reads the name that a record is about.
func nameOf(record bson.Raw) (n DeclaredName, ok bool) {
	var name bool
	if n.Name, name = record.Lookup("_id", "ledger").StringValueOK(); !name {
		n.Name, n.Documents = record.Lookup("_id", "documents").StringValueOK()
	}
	n.Namespace, ok = record.Lookup("_id", "namespace").StringValueOK()
	return n, ok && (name || n.Documents)
}

// isHere reports whether the collection of a namespace has an identity.
func isHere(ctx context.Context, client *mongo.Client, namespace, identity string) (bool, error) {
	database, collection, ok := strings.Cut(namespace, ".")
	if !ok {
		return false, nil
	}
	notes := wire.ForCommands(collections.NoteCollection(client.Database(database).Collection(collection)))
	stored, err := wire.FindID(ctx, notes, collections.IdentityID)
	if wire.NotFound(err) || wire.Denied(err) != nil {
		return false, nil
	}
	return err == nil && identity != "" && identityIn(stored) == identity, err
}

// ReadDeclaredAccounts reads the note about a collection of accounts, and whether there
// is one.
func ReadDeclaredAccounts(ctx context.Context, accounts *mongo.Collection) (d DeclaredAccounts, found bool, err error) {
	stored, err := wire.FindID(ctx, wire.ForCommands(collections.NoteCollection(accounts)), collections.NoteID)
	if wire.NotFound(err) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	n := decodeNote(stored)
	return DeclaredAccounts{
		Transfers: n.transfers,
		ObjectIDs: n.ids == document.ObjectIDs.String(),
		Fields: document.Fields{
			Balance: n.field("balance"), Pending: n.field("pending"), Fence: n.field("fence"), Floor: n.field("floor"),
			Currency: n.field("currency"), Closed: n.field("closed"), Frozen: n.field("frozen"),
		},
	}, true, nil
}
