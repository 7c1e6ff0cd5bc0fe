package deployment

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// note says how a collection is used: by which transfers collection, and under which
// names. It lies beside the collection, in the same database, so that every process that
// uses the collection finds it:
//
//  1. A process makes a hold, and keeps its markers in the field pending.
//  2. A process that is configured with another field posts it. It finds no marker, and
//     takes that as the sign that the money was moved already: Success, and the money is
//     gone.
//
// The note of the transfers has an identity, which is drawn when the note is written.
// Their namespace would not do as one: two clusters have a bank.transfers each. Nor would
// the server's UUID of the collection, which changes when it is restored, or sharded
// anew.
type note struct {
	format     int64
	of         collections.Contents
	deployment string // the identity of the transfers collection
	transfers  string // its namespace, for messages
	fields     []namedField
	ids        string   // how account IDs are stored; "" for other documents
	events     []string // the kinds of events that are delivered, of transfers
	changes    int64    // how often the note was written
	unknown    []string
}

// namedField is a field's name in the database.
type namedField struct{ role, name string }

// wantedNote returns the note that this process would write about a collection. It leaves
// the identity of the transfers to the caller.
func (d *Deployment) wantedNote(c *collections.Collection) note {
	n := note{format: document.Format, of: d.catalog.ContentsOf(c)}
	if n.of == collections.OfTransfers {
		n.events = d.catalog.Events.Names()
		return n
	}
	n.transfers = wire.NamespaceOf(d.catalog.Transfers)
	n.fields = []namedField{{"pending", c.Fields.Pending}, {"fence", c.Fields.Fence}}
	if n.of == collections.OfAccounts {
		n.fields = namedFields(c.Fields)
		n.ids = d.catalog.IDs.String()
	}
	return n
}

// namedFields lists an account's fields by the roles that [document.Fields] gives them.
func namedFields(f document.Fields) []namedField {
	return []namedField{
		{"balance", f.Balance}, {"pending", f.Pending}, {"fence", f.Fence},
		{"floor", f.Floor}, {"currency", f.Currency}, {"closed", f.Closed}, {"frozen", f.Frozen},
	}
}

// usualFrozen is the name of the field for frozen accounts where a note doesn't say any:
// there are notes from before accounts could be frozen.
const usualFrozen = "frozen"

// usual reports whether a field has the name that a note leaves out.
func (f namedField) usual() bool { return f.role == "frozen" && f.name == usualFrozen }

// document returns the note as it is stored, without _id and changes.
func (n note) document() bson.D {
	stored := bson.D{
		{Key: "format", Value: n.format}, {Key: "of", Value: string(n.of)}, {Key: "deployment", Value: n.deployment},
	}
	if n.of == collections.OfTransfers {
		if len(n.events) > 0 {
			stored = append(stored, bson.E{Key: "events", Value: n.events})
		}
		return stored
	}
	fields := bson.D{}
	for _, f := range n.fields {
		if !f.usual() {
			fields = append(fields, bson.E{Key: f.role, Value: f.name})
		}
	}
	stored = append(stored, bson.E{Key: "transfers", Value: n.transfers}, bson.E{Key: "fields", Value: fields})
	if n.ids != "" {
		stored = append(stored, bson.E{Key: "ids", Value: n.ids})
	}
	return stored
}

// decodeNote reads a note, and remembers the names of what it doesn't know. A later
// release adds a field only for what a release that ignores it would get wrong, such as
// events: they have to be delivered before a transfer is purged.
func decodeNote(stored bson.Raw) note {
	var n note
	for _, e := range wire.Elements(stored) {
		value := e.Value()
		switch e.Key() {
		case "_id":
		case "format":
			n.format, _ = value.AsInt64OK()
		case "of":
			of, _ := value.StringValueOK()
			n.of = collections.Contents(of)
		case "deployment":
			n.deployment, _ = value.StringValueOK()
		case "transfers":
			n.transfers, _ = value.StringValueOK()
		case "ids":
			n.ids, _ = value.StringValueOK()
		case "changes":
			n.changes, _ = value.AsInt64OK()
		case "fields":
			n.decodeFields(value)
		case "events":
			n.decodeEvents(value)
		default:
			n.unknown = append(n.unknown, e.Key())
		}
	}
	if n.of != collections.OfTransfers && len(n.events) > 0 {
		n.unknown = append(n.unknown, "events")
	}
	if n.of == collections.OfAccounts && n.field("frozen") == "" {
		n.fields = append(n.fields, namedField{"frozen", usualFrozen})
	}
	return n
}

func (n *note) decodeFields(stored bson.RawValue) {
	fields, _ := stored.DocumentOK()
	for _, f := range wire.Elements(fields) {
		name, _ := f.Value().StringValueOK()
		n.fields = append(n.fields, namedField{f.Key(), name})
		known := func(k namedField) bool { return k.role == f.Key() }
		if !slices.ContainsFunc(namedFields(document.Fields{}), known) {
			n.unknown = append(n.unknown, "fields."+f.Key())
		}
	}
}

// decodeEvents reads the kinds of events. A release that does not know one of them, or
// how they are stored, would not deliver it.
func (n *note) decodeEvents(stored bson.RawValue) {
	kinds, isArray := stored.ArrayOK()
	if !isArray {
		n.unknown = append(n.unknown, "events")
	}
	for _, e := range wire.Elements(bson.Raw(kinds)) {
		kind, _ := e.Value().StringValueOK()
		n.events = append(n.events, kind)
		if !slices.Contains(document.EventKinds(), document.EventKind(kind)) {
			n.unknown = append(n.unknown, "events."+kind)
		}
	}
	slices.Sort(n.events)
}

// field returns the name that a field has in the note, "" if it has none there.
func (n note) field(role string) string {
	for _, f := range n.fields {
		if f.role == role {
			return f.name
		}
	}
	return ""
}
