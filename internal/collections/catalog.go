// Package collections holds the handles of one deployment's collections, by the names
// under which they are registered, and the clock of their servers.
package collections

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Config says where the documents are.
type Config struct {
	// Transfers is the collection of the transfers.
	Transfers *mongo.Collection
	// Ledgers are the collections of accounts, by name; "" is the default one.
	Ledgers map[string]*mongo.Collection
	// Documents are the collections of documents that effects change, by name.
	Documents map[string]*mongo.Collection
	// Fields are the names of the fields of an account.
	Fields document.Fields
	// IDs says how the IDs of accounts are stored.
	IDs document.IDCodec
	// Events are the kinds of events that the deployment delivers.
	Events document.Events
	// Now is the process's clock.
	Now func() time.Time
}

// Catalog knows the collections of one deployment: that of the transfers, and the ledgers
// and documents that are registered under a name.
// It is safe for many goroutines.
type Catalog struct {
	// Transfers is the handle for commands, Majority the one for reads of what a majority
	// has stored, and Linearizable the one for deciding reads.
	Transfers, Majority, Linearizable *mongo.Collection
	// Ledgers are the collections of accounts, by name.
	Ledgers map[string]*Collection
	// Documents are the collections of documents that effects change, by name.
	Documents map[string]*Collection
	// Originals are the transfers, as documents that reversals change.
	Originals *Collection
	// Clusters are those of all collections, that of the transfers first.
	Clusters []Cluster
	// Fields are the names of the fields of an account.
	Fields document.Fields
	// IDs says how the IDs of accounts are stored.
	IDs document.IDCodec
	// Events are the kinds of events that the deployment delivers.
	Events document.Events
	// Clock estimates the time of the transfers' server.
	Clock ServerClock
	// Asking are the turns of those who ask for the server's time.
	Asking Turns
	// ServerChecks has, by *mongo.Client, the [SharedCheck] of its server.
	ServerChecks sync.Map
	// CheckedClients has the *mongo.Clients whose servers can be used, and whether they
	// are mongos.
	CheckedClients sync.Map
}

// New returns the catalog of a deployment.
// It fails if one collection is registered under two names: an account would then be two
// participants of one transfer, with one marker between them.
func New(config Config) (*Catalog, error) {
	c := &Catalog{
		Transfers:    wire.ForCommands(config.Transfers),
		Majority:     wire.ForReads(config.Transfers, readconcern.Majority()),
		Linearizable: wire.ForReads(config.Transfers, readconcern.Linearizable()),
		Ledgers:      make(map[string]*Collection, len(config.Ledgers)),
		Documents:    make(map[string]*Collection, len(config.Documents)),
		Fields:       config.Fields,
		IDs:          config.IDs,
		Events:       config.Events,
		Clock:        ServerClock{Now: config.Now},
		Asking:       make(Turns, MaxAsking),
	}
	if err := requireOwnDatabase(config.Transfers); err != nil {
		return nil, err
	}
	for name, handle := range config.Ledgers {
		if err := c.register(c.Ledgers, name, handle); err != nil {
			return nil, err
		}
	}
	for name, handle := range config.Documents {
		if err := c.register(c.Documents, name, handle); err != nil {
			return nil, err
		}
		c.Documents[name].Documents = true
		c.Documents[name].Namesakes = c.ledgersOf(c.Documents[name].Namespace)
	}
	c.Originals = c.collection(document.Originals, config.Transfers, document.Fields{Pending: "pending", Fence: "fence"})
	c.Originals.Originals = true
	if err := c.requireFreeNotes(); err != nil {
		return nil, err
	}
	for _, each := range c.All() {
		if cluster := each.Cluster(); !slices.Contains(c.Clusters, cluster) {
			c.Clusters = append(c.Clusters, cluster)
		}
	}
	return c, nil
}

// register adds a collection of participants.
func (c *Catalog) register(among map[string]*Collection, name string, handle *mongo.Collection) error {
	switch namespace := wire.NamespaceOf(handle); {
	case same(handle, c.Transfers):
		return fmt.Errorf("the collection %s holds the transfers: it can't hold anything else", namespace)
	case same(handle, RetentionCollection(c.Transfers)):
		return fmt.Errorf("the collection %s holds how long transfers are kept: it can't hold anything else", namespace)
	case same(handle, ProcessCollection(c.Transfers)):
		return fmt.Errorf("the collection %s holds which processes live: it can't hold anything else", namespace)
	}
	if err := requireOwnDatabase(handle); err != nil {
		return err
	}
	for _, address := range c.Addresses() {
		if other := c.At(address); same(handle, other.Commands) {
			return fmt.Errorf("the collection %s is registered under two names, %q and %q", other.Namespace, other.Name, name)
		}
	}
	among[name] = c.collection(name, handle, c.Fields)
	return nil
}

// requireOwnDatabase refuses a collection in a database of the server's own. What is in
// local is on one member only, although each write to it is acknowledged as one of a
// majority: after an election its money and its markers are gone. What is in config and
// admin is the server's, and in a sharded cluster it is on the config servers; MongoDB
// advises against data of others in them, and has no transactions there either.
func requireOwnDatabase(handle *mongo.Collection) error {
	switch handle.Database().Name() {
	case "local":
		return fmt.Errorf("the collection %s is not replicated: use another database than local", wire.NamespaceOf(handle))
	case "admin", "config":
		return fmt.Errorf("the collection %s is in a database of the server's own: use another one", wire.NamespaceOf(handle))
	}
	return nil
}

// ledgersOf returns the ledgers of a namespace, on whatever cluster.
func (c *Catalog) ledgersOf(namespace string) []document.Address {
	var found []document.Address
	for name, ledger := range c.Ledgers {
		if ledger.Namespace == namespace {
			found = append(found, document.Address{Name: name})
		}
	}
	return found
}

// requireFreeNotes refuses a collection in which the note about another one belongs.
func (c *Catalog) requireFreeNotes() error {
	all := c.All()
	for _, each := range all {
		for _, other := range all {
			if same(each.Commands, NoteCollection(other.Commands)) {
				return fmt.Errorf("the collection %s holds the note about %s: it can't hold anything else", each.Namespace, other.Namespace)
			}
		}
	}
	return nil
}

func (c *Catalog) collection(name string, handle *mongo.Collection, fields document.Fields) *Collection {
	return &Collection{
		Name:         name,
		Fields:       fields,
		Namespace:    wire.NamespaceOf(handle),
		Commands:     wire.ForCommands(handle),
		Majority:     wire.ForReads(handle, readconcern.Majority()),
		Linearizable: wire.ForReads(handle, readconcern.Linearizable()),
		SameClient:   handle.Database().Client() == c.Transfers.Database().Client(),
	}
}

// same reports whether two handles certainly stand for one collection.
func same(a, b *mongo.Collection) bool {
	return a.Database().Client() == b.Database().Client() && wire.NamespaceOf(a) == wire.NamespaceOf(b)
}

// All returns the transfers and all that is registered.
func (c *Catalog) All() []*Collection {
	all := []*Collection{c.Originals}
	for _, address := range c.Addresses() {
		all = append(all, c.At(address))
	}
	return all
}

// Addresses returns the addresses of all that is registered.
func (c *Catalog) Addresses() []document.Address {
	var all []document.Address
	for name := range c.Ledgers {
		all = append(all, document.Address{Name: name})
	}
	for name := range c.Documents {
		all = append(all, document.Address{Documents: true, Name: name})
	}
	return all
}

// At returns what is registered at an address, nil if nothing is.
func (c *Catalog) At(address document.Address) *Collection {
	if address.Documents {
		return c.Documents[address.Name]
	}
	return c.Ledgers[address.Name]
}

// HasLedger reports whether a ledger of that name is registered.
func (c *Catalog) HasLedger(name string) bool { return c.Ledgers[name] != nil }

// HasDocuments reports whether a collection of documents is registered under that name.
func (c *Catalog) HasDocuments(name string) bool { return c.Documents[name] != nil }

// Namespace returns database and collection of a registered ledger.
func (c *Catalog) Namespace(name string) string { return c.Ledgers[name].Namespace }

// DocumentsNamespace returns database and collection of registered documents.
func (c *Catalog) DocumentsNamespace(name string) string { return c.Documents[name].Namespace }

// WithLimit is [wire.WithLimit] by the process's clock.
func (c *Catalog) WithLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return wire.WithLimit(ctx, c.Clock.Now, limit)
}
