// Package collections holds the handles of one deployment's collections, by the names under
// which they are registered, and the clock of their servers.
package collections

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// NoteCollection returns where the note of a collection is.
func NoteCollection(c *mongo.Collection) *mongo.Collection {
	return c.Database().Collection(c.Name() + ".transfer")
}

// Cluster is where commands go. It can be compared.
type Cluster struct{ Client *mongo.Client }

func (l *Collection) Cluster() Cluster { return Cluster{l.Commands.Database().Client()} }

// Subject is a document that an operation writes to. It can be compared.
type Subject struct {
	Collection *Collection // nil: the transfers
	ID         string
}

// RetentionCollection returns the collection of the retentions that are in use.
func RetentionCollection(transfers *mongo.Collection) *mongo.Collection {
	return transfers.Database().Collection(transfers.Name() + ".retention")
}

// All returns the transfers and all that is registered.
func (s *Catalog) All() []*Collection {
	all := []*Collection{s.Originals}
	for _, p := range s.Addresses() {
		all = append(all, s.At(p))
	}
	return all
}

// Config says where the documents are.
type Config struct {
	Transfers *mongo.Collection
	Ledgers   map[string]*mongo.Collection // by name; "" is the default one
	Documents map[string]*mongo.Collection // that effects change, by name
	Fields    document.Fields
	IDs       document.IDCodec
	Now       func() time.Time // the process's clock
}

// Catalog knows the collections of one deployment: that of the transfers, and the ledgers
// and documents that are registered under a name. It is safe for many goroutines.
type Catalog struct {
	Transfers      *mongo.Collection // for commands
	Majority       *mongo.Collection // the same for reads of what a majority has stored
	Linearizable   *mongo.Collection // the same for deciding reads
	Ledgers        map[string]*Collection
	Documents      map[string]*Collection // that effects change
	Originals      *Collection            // the transfers, as documents that reversals change
	Clusters       []Cluster              // all of them, that of the transfers first
	Fields         document.Fields
	IDs            document.IDCodec
	Clock          ServerClock
	Asking         Turns    // of those who ask for the server's time
	ServerChecks   sync.Map // by *mongo.Client, the serverCheck of those whose servers were asked whether they can be used
	CheckedClients sync.Map // the *mongo.Clients whose servers can be used, and whether they are mongos
}

// Collection is a collection of participants.
type Collection struct {
	Name         string
	Documents    bool // that effects change, not accounts
	Fields       document.Fields
	Namespace    string
	Commands     *mongo.Collection
	Majority     *mongo.Collection
	Linearizable *mongo.Collection
	SameClient   bool               // as the transfers'
	Namesakes    []document.Address // of documents: the ledgers of the same namespace, which are reached through other clients
}

// New returns the catalog of a deployment. It fails if one collection is registered
// under two names: an account would then be two participants of one transfer, with one
// marker between them.
func New(config Config) (*Catalog, error) {
	s := &Catalog{
		Transfers:    wire.ForCommands(config.Transfers),
		Majority:     wire.ForReads(config.Transfers, readconcern.Majority()),
		Linearizable: wire.ForReads(config.Transfers, readconcern.Linearizable()),
		Ledgers:      make(map[string]*Collection, len(config.Ledgers)),
		Documents:    make(map[string]*Collection, len(config.Documents)),
		Fields:       config.Fields,
		IDs:          config.IDs,
		Clock:        ServerClock{Now: config.Now},
		Asking:       make(Turns, MaxAsking),
	}
	for name, collection := range config.Ledgers {
		if err := s.register(s.Ledgers, name, collection); err != nil {
			return nil, err
		}
	}
	for name, collection := range config.Documents {
		if err := s.register(s.Documents, name, collection); err != nil {
			return nil, err
		}
		l := s.Documents[name]
		l.Documents = true
		for name, other := range s.Ledgers {
			if other.Namespace == l.Namespace {
				l.Namesakes = append(l.Namesakes, document.Address{Name: name})
			}
		}
	}
	s.Originals = s.newLedger("transfers", config.Transfers, document.Fields{Pending: "pending", Fence: "fence"})
	if err := s.noteNames(); err != nil {
		return nil, err
	}
	s.Clusters = []Cluster{s.Originals.Cluster()}
	for _, p := range s.Addresses() {
		if c := s.At(p).Cluster(); !slices.Contains(s.Clusters, c) {
			s.Clusters = append(s.Clusters, c)
		}
	}
	return s, nil
}

// register takes a collection of participants in.
func (s *Catalog) register(among map[string]*Collection, name string, collection *mongo.Collection) error {
	if same(collection, s.Transfers) {
		return fmt.Errorf("the collection %s holds the transfers: it can't hold anything else", wire.NamespaceOf(collection))
	}
	if same(collection, RetentionCollection(s.Transfers)) {
		return fmt.Errorf("the collection %s holds how long transfers are kept: it can't hold anything else", wire.NamespaceOf(collection))
	}
	for _, place := range s.Addresses() {
		if registered := s.At(place); same(collection, registered.Commands) {
			return fmt.Errorf("the collection %s is registered under two names, %q and %q", registered.Namespace, registered.Name, name)
		}
	}
	among[name] = s.newLedger(name, collection, s.Fields)
	return nil
}

// noteNames refuses a collection that is registered for something else, and in which a note
// of another one belongs.
func (s *Catalog) noteNames() error {
	all := []*Collection{s.Originals}
	for _, p := range s.Addresses() {
		all = append(all, s.At(p))
	}
	for _, l := range all {
		for _, other := range all {
			if same(l.Commands, NoteCollection(other.Commands)) {
				return fmt.Errorf("the collection %s holds the note about %s: it can't hold anything else", l.Namespace, other.Namespace)
			}
		}
	}
	return nil
}

func (s *Catalog) newLedger(name string, collection *mongo.Collection, fields document.Fields) *Collection {
	return &Collection{
		Name:         name,
		Fields:       fields,
		Namespace:    wire.NamespaceOf(collection),
		Commands:     wire.ForCommands(collection),
		Majority:     wire.ForReads(collection, readconcern.Majority()),
		Linearizable: wire.ForReads(collection, readconcern.Linearizable()),
		SameClient:   collection.Database().Client() == s.Transfers.Database().Client(),
	}
}

// same reports whether two handles certainly stand for one collection.
func same(a, b *mongo.Collection) bool {
	return a.Database().Client() == b.Database().Client() && wire.NamespaceOf(a) == wire.NamespaceOf(b)
}

// WithLimit is the function of that name by the process's clock.
func (s *Catalog) WithLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return wire.WithLimit(ctx, s.Clock.Now, limit)
}

// HasLedger reports whether a ledger of that name is registered.
func (s *Catalog) HasLedger(name string) bool { return s.Ledgers[name] != nil }

// HasDocuments reports whether a collection of documents is registered under that name.
func (s *Catalog) HasDocuments(name string) bool { return s.Documents[name] != nil }

// Addresses returns all that is registered.
func (s *Catalog) Addresses() []document.Address {
	var places []document.Address
	for name := range s.Ledgers {
		places = append(places, document.Address{Name: name})
	}
	for name := range s.Documents {
		places = append(places, document.Address{Documents: true, Name: name})
	}
	return places
}

// At returns what is registered under a name, nil if nothing is.
func (s *Catalog) At(p document.Address) *Collection {
	if p.Documents {
		return s.Documents[p.Name]
	}
	return s.Ledgers[p.Name]
}

// Namespace returns database and collection of a registered ledger.
func (s *Catalog) Namespace(name string) string { return s.Ledgers[name].Namespace }

// DocumentsNamespace returns database and collection of registered documents.
func (s *Catalog) DocumentsNamespace(name string) string {
	return s.Documents[name].Namespace
}

// HoldsAccounts reports whether the collection is a ledger.
// Otherwise it holds documents that effects change, or the transfers.
func (l *Collection) HoldsAccounts() bool { return !l.Documents && l.Fields.Balance != "" }

// Subject names a document. The IDs of accounts are all of one kind, those of other documents may be of any.
func (l *Collection) Subject(id bson.RawValue) Subject {
	if l.Documents {
		return Subject{l, document.ComparableID(id)}
	}
	return Subject{l, string(id.Value)}
}
