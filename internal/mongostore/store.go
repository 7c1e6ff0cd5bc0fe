// Package mongostore performs the protocol's operations as MongoDB commands. It decides nothing: it says what the server
// answered, and where the answer leaves doubt it says Unknown.
//
// Every write is one plain command with write concern majority, journaled. Plain, because the driver would
// send a retryable write twice and hide it; with an explicit write concern, because the client's default may be weaker.
package mongostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Fields are the names of the fields of an account that the protocol reads and writes.
type Fields struct {
	Balance, Pending, Fence, Floor, Currency, Closed string
}

// Config says where the documents are.
type Config struct {
	Transfers   *mongo.Collection
	Ledgers     map[string]*mongo.Collection // by name; "" is the default one
	Fields      Fields
	IDs         IDCodec
	MarkerLimit int              // transfers in flight on one participant
	Retention   time.Duration    // how long final transfers are kept; 0: for good
	Now         func() time.Time // the process's clock
}

// Store performs operations. It is safe for many goroutines.
type Store struct {
	transfers    *mongo.Collection // for commands
	majority     *mongo.Collection // the same for reads of what a majority has stored
	linearizable *mongo.Collection // the same for deciding reads
	ledgers      map[string]*ledger
	fields       Fields
	exactBalance bson.Raw // see exactBalance
	ids          IDCodec
	markerLimit  int
	fences       fenceCache
	clock        serverClock
	retention    *retention
	asking       turns    // of those who ask for the server's time
	fitting      sync.Map // by *mongo.Client, the turns of those who ask whether its server can be used
	fitClients   sync.Map // the *mongo.Clients whose servers can be used, and whether they are mongos
	apartPairs   sync.Map // the pairs of *mongo.Collections of one name that are not one collection
}

// ledger is a collection of participants.
type ledger struct {
	name         string
	namespace    string
	commands     *mongo.Collection
	majority     *mongo.Collection
	linearizable *mongo.Collection
	sameClient   bool // as the transfers'
}

// New returns a store. It fails if one collection is registered under two names: an account would then be two
// participants of one transfer, with one marker between them.
func New(config Config) (*Store, error) {
	s := &Store{
		transfers:    handle(config.Transfers),
		majority:     reading(config.Transfers, readconcern.Majority()),
		linearizable: reading(config.Transfers, readconcern.Linearizable()),
		ledgers:      make(map[string]*ledger, len(config.Ledgers)),
		fields:       config.Fields,
		ids:          config.IDs,
		markerLimit:  config.MarkerLimit,
		fences:       fenceCache{now: config.Now, entries: map[Subject]knownFence{}},
		clock:        serverClock{now: config.Now},
		retention:    newRetention(config.Retention, config.Transfers),
		asking:       make(turns, maxAsking),
	}
	var err error
	if s.exactBalance, err = exactBalance(s.fields.Balance); err != nil {
		return nil, err
	}
	for name, collection := range config.Ledgers {
		if same(collection, config.Transfers) {
			return nil, fmt.Errorf("the collection %s holds the transfers: it can't hold accounts as well", namespaceOf(collection))
		}
		for other, registered := range s.ledgers {
			if same(collection, registered.commands) {
				return nil, fmt.Errorf("the collection %s is registered under two names, %q and %q", registered.namespace, other, name)
			}
		}
		s.ledgers[name] = &ledger{
			name:         name,
			namespace:    namespaceOf(collection),
			commands:     handle(collection),
			majority:     reading(collection, readconcern.Majority()),
			linearizable: reading(collection, readconcern.Linearizable()),
			sameClient:   collection.Database().Client() == config.Transfers.Database().Client(),
		}
	}
	return s, nil
}

// handle returns a handle of the same collection whose concerns are the store's own, and not the client's.
func handle(c *mongo.Collection) *mongo.Collection {
	concerns := options.Database().
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
	return c.Database().Client().Database(c.Database().Name(), concerns).Collection(c.Name())
}

// reading returns the collection for reads from the primary, whatever the client prefers.
func reading(c *mongo.Collection, concern *readconcern.ReadConcern) *mongo.Collection {
	return c.Clone(options.Collection().SetReadConcern(concern).SetReadPreference(readpref.Primary()))
}

func namespaceOf(c *mongo.Collection) string { return c.Database().Name() + "." + c.Name() }

// same reports whether two handles certainly stand for one collection.
func same(a, b *mongo.Collection) bool {
	return a.Database().Client() == b.Database().Client() && namespaceOf(a) == namespaceOf(b)
}

// HasLedger reports whether a ledger of that name is registered.
func (s *Store) HasLedger(name string) bool { return s.ledgers[name] != nil }

// Ledgers returns the names of all registered ledgers.
func (s *Store) Ledgers() []string { return slices.Collect(maps.Keys(s.ledgers)) }

// Namespace returns database and collection of a registered ledger.
func (s *Store) Namespace(name string) string { return s.ledgers[name].namespace }

// ErrForeign is returned for a transfer that touches a collection which is not registered here under the name that
// it stored.
var ErrForeign = errors.New("touches a collection that is not registered here under that name")

// Work is one execution's view of its transfer: what the operations of that execution are performed on. It is used
// by one goroutine at a time, but for the operations of one round.
type Work struct {
	Transfer  Transfer
	Owner     string                        // a nonce of this execution's own
	Threshold time.Duration                 // of a takeover
	Describe  func(protocol.Refusal) string // the text of a stored failure
	Cause     error                         // the latest error that made an answer less than Applied
	marker    string                        // the path of the transfer's marker
	parties   []party
}

// party is one participant of a work.
type party struct {
	key     Subject
	leg     Leg
	id      bson.RawValue
	floor   floor          // as last read
	balance *bson.RawValue // as last read by a look
}

// NewWork resolves a transfer's participants. It fails with ErrForeign if one is not registered here.
func (s *Store) NewWork(t Transfer, owner string) (*Work, error) {
	w := &Work{
		Transfer: t, Owner: owner, marker: s.fields.Pending + "." + markerKey(t.ID), parties: make([]party, len(t.Legs)),
	}
	for i, leg := range t.Legs {
		l := s.ledgers[leg.Ledger]
		if l == nil || l.namespace != leg.Namespace {
			return nil, fmt.Errorf("ledger %q (%s): %w", leg.Ledger, leg.Namespace, ErrForeign)
		}
		id, err := s.ids.Encode(leg.Account)
		if err != nil {
			return nil, err
		}
		w.parties[i] = party{key: Subject{l, string(id.Value)}, leg: leg, id: id}
	}
	return w, nil
}

// CommandLimit is how long one command may take. After it its answer counts as Unknown.
const CommandLimit = 5 * time.Second

// detached returns a context without the caller's session: our writes are never part of a transaction of
// theirs, which could be rolled back after we have said that money moved.
func detached(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }
