package collections

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
)

// Collection is a collection of participants.
type Collection struct {
	// Name is the one under which it is registered.
	Name string
	// Documents says that effects change its documents, which are not accounts.
	Documents bool
	// Originals says that they are transfers, which reversals change.
	Originals bool
	// Fields are the names of the fields of its documents.
	Fields document.Fields
	// Namespace is its database and its name, such as "bank.accounts".
	Namespace string
	// Commands is the handle for commands, Majority the one for reads of what a majority
	// has stored, and Linearizable the one for deciding reads.
	Commands, Majority, Linearizable *mongo.Collection
	// SameClient says that it is reached through the client of the transfers.
	SameClient bool
	// Confirm makes sure that the collection which answers is the one that was connected.
	// nil asks nothing.
	Confirm func(context.Context) error
	// Namesakes are, for documents, the ledgers of the same namespace, which are reached
	// through other clients.
	Namesakes []document.Address
}

// Address returns what it is registered as.
func (l *Collection) Address() document.Address {
	return document.Address{Documents: l.Documents, Name: l.Name}
}

// Projection returns the fields by which its documents are judged.
func (l *Collection) Projection() bson.D {
	fields := l.Fields.Projection()
	if l.Originals {
		fields = append(fields, document.OriginalProjection()...)
	}
	return fields
}

// Cluster is where commands go. It can be compared.
type Cluster struct{ Client *mongo.Client }

// Cluster returns where the commands to a collection go.
func (l *Collection) Cluster() Cluster { return Cluster{Client: l.Commands.Database().Client()} }

// Subject is a document that an operation writes to. It can be compared.
type Subject struct {
	// Collection is nil for the transfer's own document.
	Collection *Collection
	// ID is the _id, in a form that is equal where the server takes two for equal.
	ID string
}

// Subject returns the document with an _id.
// The IDs of accounts are all of one kind, those of other documents may be of any.
func (l *Collection) Subject(id bson.RawValue) Subject {
	if l.Documents {
		return Subject{Collection: l, ID: document.ComparableID(id)}
	}
	return Subject{Collection: l, ID: string(id.Value)}
}

// Confirmed reads from the collection, and has it confirmed before and after that, if
// asked. So an address would have to lead elsewhere and back again within three commands
// to show another collection's documents. A read that concludes nothing is not confirmed
// after it.
func (l *Collection) Confirmed(ctx context.Context, asked bool, read func() (concludes bool, err error)) error {
	confirm := l.Confirm
	if !asked || confirm == nil {
		confirm = func(context.Context) error { return nil }
	}
	if err := confirm(ctx); err != nil {
		return err
	}
	concludes, err := read()
	if err != nil || !concludes {
		return err
	}
	return confirm(ctx)
}

// NoteCollection returns where the note about a collection is.
func NoteCollection(c *mongo.Collection) *mongo.Collection {
	return c.Database().Collection(c.Name() + ".transfer")
}

// RetentionCollection returns the collection of the retentions that are in use.
func RetentionCollection(transfers *mongo.Collection) *mongo.Collection {
	return transfers.Database().Collection(transfers.Name() + ".retention")
}

// ProcessCollection returns the collection in which processes note that they live.
func ProcessCollection(transfers *mongo.Collection) *mongo.Collection {
	return transfers.Database().Collection(transfers.Name() + ".processes")
}

// HoldsAccounts reports whether the collection is a ledger.
// Otherwise it holds documents that effects change, or the transfers.
func (l *Collection) HoldsAccounts() bool { return !l.Documents && l.Fields.Balance != "" }
