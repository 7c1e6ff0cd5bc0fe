package deployment

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// noteID is the _id of a note. A collection of notes holds this one document.
const noteID = "deployment"

// storedFormat is the version of the documents that this release writes: transfers, markers
// and fences. It changes when a release can't work beside the one before it.
const storedFormat = 1

// deploymentNote says how a collection is used: by which transfers collection, under
// which names. It lies beside the collection, in the same database, so that it is there
// for whoever uses the collection, from whichever process:
//
//  1. A hold is made by a process that keeps markers in the field pending.
//  2. It is posted by one that was told another field. It finds no marker, and takes that
//     for the sign that the money was moved already: Success, and the money is gone.
//
// The transfers have a note of their own, with an identity that is drawn when it is
// written. Their namespace would not do: two clusters have a bank.transfers each; and the
// server's UUID of a collection changes when it is restored, or sharded anew.
type deploymentNote struct {
	format     int64
	of         string // what the collection holds
	deployment string // the identity of the transfers collection
	transfers  string // its namespace, for messages
	fields     []namedField
	ids        string // how account IDs are stored; "" where they are no accounts
	changes    int64  // how often the note was written
	unknown    []string
}

// namedField is a field's name in the database.
type namedField struct{ role, name string }

// What a collection with a note holds.
const (
	ofTransfers = "transfers"
	ofAccounts  = "accounts"
	ofDocuments = "documents"
)

// holds tells what a ledger's collection holds.
func (s *Deployment) holds(l *collections.Collection) string {
	switch {
	case l == s.Originals:
		return ofTransfers
	case l.Documents:
		return ofDocuments
	}
	return ofAccounts
}

// wanted returns the note that this store would write for a collection. The identity of the
// transfers is left to the caller.
func (s *Deployment) wanted(l *collections.Collection) deploymentNote {
	n := deploymentNote{format: storedFormat, of: s.holds(l)}
	if n.of == ofTransfers {
		return n
	}
	n.transfers = wire.NamespaceOf(s.Transfers)
	n.fields = []namedField{{"pending", l.Fields.Pending}, {"fence", l.Fields.Fence}}
	if n.of == ofAccounts {
		n.fields = namedFields(l.Fields)
		n.ids = s.IDs.String()
	}
	return n
}

// namedFields lists the fields by the names that [Fields] has for them.
func namedFields(f document.Fields) []namedField {
	return []namedField{
		{"balance", f.Balance}, {"pending", f.Pending}, {"fence", f.Fence},
		{"floor", f.Floor}, {"currency", f.Currency}, {"closed", f.Closed},
	}
}

// document is the note as it is stored, but for _id and changes.
func (n deploymentNote) document() bson.D {
	d := bson.D{{Key: "format", Value: n.format}, {Key: "of", Value: n.of}, {Key: "deployment", Value: n.deployment}}
	if n.of == ofTransfers {
		return d
	}
	fields := bson.D{}
	for _, f := range n.fields {
		fields = append(fields, bson.E{Key: f.role, Value: f.name})
	}
	d = append(d, bson.E{Key: "transfers", Value: n.transfers}, bson.E{Key: "fields", Value: fields})
	if n.ids != "" {
		d = append(d, bson.E{Key: "ids", Value: n.ids})
	}
	return d
}

// decodeNote reads a note. What it doesn't know it remembers by name: a later release adds
// a field only for what a release that ignores it would get wrong, such as events that have
// to be delivered before a transfer is purged.
func decodeNote(doc bson.Raw) deploymentNote {
	var n deploymentNote
	for _, e := range wire.Elements(doc) {
		value := e.Value()
		switch e.Key() {
		case "_id":
		case "format":
			n.format, _ = value.AsInt64OK()
		case "of":
			n.of, _ = value.StringValueOK()
		case "deployment":
			n.deployment, _ = value.StringValueOK()
		case "transfers":
			n.transfers, _ = value.StringValueOK()
		case "ids":
			n.ids, _ = value.StringValueOK()
		case "changes":
			n.changes, _ = value.AsInt64OK()
		case "fields":
			fields, _ := value.DocumentOK()
			for _, f := range wire.Elements(fields) {
				name, _ := f.Value().StringValueOK()
				n.fields = append(n.fields, namedField{f.Key(), name})
				if !slices.ContainsFunc(namedFields(document.Fields{}), func(known namedField) bool { return known.role == f.Key() }) {
					n.unknown = append(n.unknown, "fields."+f.Key())
				}
			}
		default:
			n.unknown = append(n.unknown, e.Key())
		}
	}
	return n
}

// field returns the name that a field has in the note, "" if it tells none.
func (n deploymentNote) field(role string) string {
	for _, f := range n.fields {
		if f.role == role {
			return f.name
		}
	}
	return ""
}

// differs tells what of a stored deploymentNote this store can't work beside, one reason each.
func (n deploymentNote) differs(stored deploymentNote, l *collections.Collection) []string {
	if stored.format != storedFormat {
		which := "a later release"
		if stored.format < storedFormat {
			which = "an earlier release"
		}
		return []string{fmt.Sprintf("this release writes format %d, and %s was set up in format %d: use %s",
			storedFormat, l.Namespace, stored.format, which)}
	}
	if len(stored.unknown) > 0 {
		return []string{fmt.Sprintf("the note of %s says something of %s that this release does not know: use a later release",
			l.Namespace, quoted(stored.unknown))}
	}
	var reasons []string
	if stored.of != n.of {
		reasons = append(reasons, fmt.Sprintf("%s was set up to hold %s, and is used for %s here", l.Namespace, stored.of, n.of))
	}
	if n.of != ofTransfers && n.deployment == "" {
		reasons = append(reasons, fmt.Sprintf("%s belongs to the transfers collection %s, and this is another one, %s, or has lost its note "+
			"(see WithTransfers)", l.Namespace, stored.transfers, n.transfers))
	} else if n.of != ofTransfers && n.deployment != stored.deployment {
		reasons = append(reasons, fmt.Sprintf("%s belongs to the transfers collection %s, and this is another one, %s (see WithTransfers)",
			l.Namespace, stored.transfers, n.transfers))
	}
	if stored.ids != n.ids && stored.of == n.of {
		reasons = append(reasons, fmt.Sprintf("%s stores account IDs as %s, and WithAccountIDs says %s", l.Namespace, stored.ids, n.ids))
	}
	return append(reasons, n.fieldsDiffer(stored, l)...)
}

func (n deploymentNote) fieldsDiffer(stored deploymentNote, l *collections.Collection) []string {
	if stored.of != n.of {
		return nil
	}
	var reasons []string
	for _, f := range n.fields {
		if name := stored.field(f.role); name != f.name {
			reasons = append(reasons, fmt.Sprintf("in %s the field for %s is %q, and WithFields says %q", l.Namespace, f.role, name, f.name))
		}
	}
	return reasons
}

// agrees refuses a stored deploymentNote that differs.
func (n deploymentNote) agrees(stored deploymentNote, l *collections.Collection) error {
	if n.of == ofTransfers && stored.deployment == "" && stored.format == storedFormat {
		return fmt.Errorf("%w: the note of %s has no identity: restore it, or see Coordinator.Adopt", collections.ErrUnsupported, l.Namespace)
	}
	reasons := n.differs(stored, l)
	if len(reasons) == 0 {
		return nil
	}
	advice := ": give this coordinator the same options as the others; to change the deployment on purpose, see Coordinator.Adopt"
	if stored.format != storedFormat || len(stored.unknown) > 0 {
		advice = ""
	}
	return fmt.Errorf("%w: %s%s", collections.ErrUnsupported, strings.Join(reasons, "; "), advice)
}

// quoted lists names.
func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = words.Quote(name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
