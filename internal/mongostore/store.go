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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// Fields are the names of the fields of an account that the protocol reads and writes.
type Fields struct {
	Balance, Pending, Fence, Floor, Currency, Closed string
}

// Config says where the documents are.
type Config struct {
	Transfers *mongo.Collection
	Ledgers   map[string]*mongo.Collection // by name; "" is the default one
	Documents map[string]*mongo.Collection // that effects change, by name
	Fields    Fields
	IDs       IDCodec
	Now       func() time.Time // the process's clock
}

// Catalog knows the collections of one deployment: that of the transfers, and the ledgers
// and documents that are registered under a name. It is safe for many goroutines.
type Catalog struct {
	transfers      *mongo.Collection // for commands
	majority       *mongo.Collection // the same for reads of what a majority has stored
	linearizable   *mongo.Collection // the same for deciding reads
	ledgers        map[string]*ledger
	documents      map[string]*ledger // that effects change
	originals      *ledger            // the transfers, as documents that reversals change
	clusters       []Cluster          // all of them, that of the transfers first
	fields         Fields
	ids            IDCodec
	clock          serverClock
	asking         turns    // of those who ask for the server's time
	serverChecks   sync.Map // by *mongo.Client, the serverCheck of those whose servers were asked whether they can be used
	checkedClients sync.Map // the *mongo.Clients whose servers can be used, and whether they are mongos
}

// Deployment makes sure that the collections of a catalog can be used, and that everybody
// who uses them means the same by them. It is safe for many goroutines.
type Deployment struct {
	*Catalog
	identity_     atomic.Pointer[string] // of the transfers, once their note was seen
	near          atomic.Bool            // ConnectNear has found nothing wrong
	inspections   map[*ledger]*inspection
	retention     *retention
	distinctPairs sync.Map // the pairs of *mongo.Collections of one name that are not one collection
}

// Queries reads transfers. It is safe for many goroutines.
type Queries struct {
	*Catalog
	needs map[Address][]string // the clusters that a place needs: see Route
}

// Accounts opens, closes and reads accounts. It is safe for many goroutines.
type Accounts struct{ *Catalog }

// Histories read the past of accounts. They are safe for many goroutines.
type Histories struct {
	*Catalog
	barless refusal // of the right to bar
}

// Repairs writes what an audit advises. It is safe for many goroutines.
type Repairs struct{ *Catalog }

// Store performs operations. It is safe for many goroutines.
type Store struct {
	*Catalog
	deployment   *Deployment
	exactBalance bson.Raw // see exactBalance
	markerLimit  int
	fences       *fenceCache
}

// ledger is a collection of participants.
type ledger struct {
	name         string
	documents    bool // that effects change, not accounts
	fields       Fields
	namespace    string
	commands     *mongo.Collection
	majority     *mongo.Collection
	linearizable *mongo.Collection
	sameClient   bool      // as the transfers'
	namesakes    []Address // of documents: the ledgers of the same namespace, which are reached through other clients
}

// NewCatalog returns the catalog of a deployment. It fails if one collection is registered
// under two names: an account would then be two participants of one transfer, with one
// marker between them.
func NewCatalog(config Config) (*Catalog, error) {
	s := &Catalog{
		transfers:    handle(config.Transfers),
		majority:     reading(config.Transfers, readconcern.Majority()),
		linearizable: reading(config.Transfers, readconcern.Linearizable()),
		ledgers:      make(map[string]*ledger, len(config.Ledgers)),
		documents:    make(map[string]*ledger, len(config.Documents)),
		fields:       config.Fields,
		ids:          config.IDs,
		clock:        serverClock{now: config.Now},
		asking:       make(turns, maxAsking),
	}
	for name, collection := range config.Ledgers {
		if err := s.register(s.ledgers, name, collection); err != nil {
			return nil, err
		}
	}
	for name, collection := range config.Documents {
		if err := s.register(s.documents, name, collection); err != nil {
			return nil, err
		}
		l := s.documents[name]
		l.documents = true
		for name, other := range s.ledgers {
			if other.namespace == l.namespace {
				l.namesakes = append(l.namesakes, Address{Name: name})
			}
		}
	}
	s.originals = s.newLedger("transfers", config.Transfers, Fields{Pending: "pending", Fence: "fence"})
	if err := s.noteNames(); err != nil {
		return nil, err
	}
	s.clusters = []Cluster{s.originals.cluster()}
	for _, p := range s.Addresses() {
		if c := s.at(p).cluster(); !slices.Contains(s.clusters, c) {
			s.clusters = append(s.clusters, c)
		}
	}
	return s, nil
}

// NewDeployment returns the deployment of a catalog. Final transfers are kept for as long
// as keep says; 0: for good.
func NewDeployment(c *Catalog, keep time.Duration) *Deployment {
	d := &Deployment{Catalog: c, retention: newRetention(keep, c.transfers), inspections: map[*ledger]*inspection{}}
	for _, l := range c.all() {
		d.inspections[l] = &inspection{notes: handle(noteCollection(l.commands)), surveying: newServerCheck()}
	}
	return d
}

// inspection is what is known of a collection.
type inspection struct {
	connected atomic.Bool       // Connect has found nothing wrong with it by itself
	notes     *mongo.Collection // where its note is
	surveying *serverCheck      // of those who look at the collection and its note
	surveyed  atomic.Bool       // nothing is wrong with the collection
	noted     atomic.Bool       // its note says what this store would say
	unnoted   atomic.Bool       // it had no note when that was looked for
}

// of returns what is known of a collection of the catalog.
func (s *Deployment) of(l *ledger) *inspection { return s.inspections[l] }

// NewQueries returns the queries of a catalog.
func NewQueries(c *Catalog) *Queries {
	q := &Queries{Catalog: c}
	q.needs = q.needsOf()
	return q
}

// NewAccounts returns the accounts of a catalog.
func NewAccounts(c *Catalog) *Accounts { return &Accounts{c} }

// NewHistories returns the histories of a catalog.
func NewHistories(c *Catalog) *Histories { return &Histories{Catalog: c} }

// NewRepairs returns the repairs of a catalog.
func NewRepairs(c *Catalog) *Repairs { return &Repairs{c} }

// Limits are what a store keeps to.
type Limits struct {
	Markers    int   // transfers in flight on one participant
	FenceBytes int64 // of memory for known fences; 0: none
}

// New returns the store of a deployment.
func New(d *Deployment, limits Limits) (*Store, error) {
	c := d.Catalog
	exact, err := exactBalance(c.fields.Balance)
	if err != nil {
		return nil, err
	}
	return &Store{
		Catalog:      c,
		deployment:   d,
		exactBalance: exact,
		markerLimit:  limits.Markers,
		fences:       newFenceCache(c.clock.now, limits.FenceBytes),
	}, nil
}

// register takes a collection of participants in.
func (s *Catalog) register(among map[string]*ledger, name string, collection *mongo.Collection) error {
	if same(collection, s.transfers) {
		return fmt.Errorf("the collection %s holds the transfers: it can't hold anything else", namespaceOf(collection))
	}
	if same(collection, retentionCollection(s.transfers)) {
		return fmt.Errorf("the collection %s holds how long transfers are kept: it can't hold anything else", namespaceOf(collection))
	}
	for _, place := range s.Addresses() {
		if registered := s.at(place); same(collection, registered.commands) {
			return fmt.Errorf("the collection %s is registered under two names, %q and %q", registered.namespace, registered.name, name)
		}
	}
	among[name] = s.newLedger(name, collection, s.fields)
	return nil
}

// noteNames refuses a collection that is registered for something else, and in which a note
// of another one belongs.
func (s *Catalog) noteNames() error {
	all := []*ledger{s.originals}
	for _, p := range s.Addresses() {
		all = append(all, s.at(p))
	}
	for _, l := range all {
		for _, other := range all {
			if same(l.commands, noteCollection(other.commands)) {
				return fmt.Errorf("the collection %s holds the note about %s: it can't hold anything else", l.namespace, other.namespace)
			}
		}
	}
	return nil
}

func (s *Catalog) newLedger(name string, collection *mongo.Collection, fields Fields) *ledger {
	return &ledger{
		name:         name,
		fields:       fields,
		namespace:    namespaceOf(collection),
		commands:     handle(collection),
		majority:     reading(collection, readconcern.Majority()),
		linearizable: reading(collection, readconcern.Linearizable()),
		sameClient:   collection.Database().Client() == s.transfers.Database().Client(),
	}
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

// WithLimit is the function of that name by the process's clock.
func (s *Catalog) WithLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return WithLimit(ctx, s.clock.now, limit)
}

// HasLedger reports whether a ledger of that name is registered.
func (s *Catalog) HasLedger(name string) bool { return s.ledgers[name] != nil }

// HasDocuments reports whether a collection of documents is registered under that name.
func (s *Catalog) HasDocuments(name string) bool { return s.documents[name] != nil }

// Address names a registered ledger, or a collection of documents.
type Address struct {
	Documents bool
	Name      string
}

// String tells the address.
func (a Address) String() string {
	if a.Documents {
		return fmt.Sprintf("documents %q", a.Name)
	}
	if a.Name == "" {
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", a.Name)
}

// Addresses returns all that is registered.
func (s *Catalog) Addresses() []Address {
	var places []Address
	for name := range s.ledgers {
		places = append(places, Address{Name: name})
	}
	for name := range s.documents {
		places = append(places, Address{Documents: true, Name: name})
	}
	return places
}

// at returns what is registered under a name, nil if nothing is.
func (s *Catalog) at(p Address) *ledger {
	if p.Documents {
		return s.documents[p.Name]
	}
	return s.ledgers[p.Name]
}

// Namespace returns database and collection of a registered ledger.
func (s *Catalog) Namespace(name string) string { return s.ledgers[name].namespace }

// DocumentsNamespace returns database and collection of registered documents.
func (s *Catalog) DocumentsNamespace(name string) string {
	return s.documents[name].namespace
}

// ErrForeign is returned for a transfer that touches a collection which is not registered here under the name that
// it stored.
var ErrForeign = errors.New("touches a collection that is not registered here under that name")

// Attempt is one execution's view of its transfer: what the operations of that execution are performed on. It is used
// by one goroutine at a time, but for the operations of one round.
type Attempt struct {
	Transfer     Transfer
	Owner        string                        // a nonce of this execution's own
	Threshold    time.Duration                 // of a takeover
	Describe     func(protocol.Refusal) string // the text of a stored failure
	HoldFor      time.Duration                 // how long a hold is held, from its insert on
	Post         *money.Amount                 // what is posted of a hold; nil: all of it
	Cause        error                         // the latest error that made an answer less than Applied
	late         bool                          // a finish that named the time of the purge has not matched
	participants []participant
}

// participant is one participant of a work.
type participant struct {
	key     Subject
	leg     Leg     // of an effect: the names of the documents and of the one document, and no amount
	effect  *effect // nil: it is a leg
	marker  string  // the path of the transfer's marker
	id      bson.RawValue
	floor   floor           // as last read
	balance *bson.RawValue  // as last read by a look
	garbled bool            // the latest look has shown no map of markers where one is to be removed
	refusal protocol.Reason // that the latest read has shown; 0: none
	unlike  string          // why its document is not one for the amount, as last read; "": it is one

	// What a refusal is told with: see Evidence.
	currency *string
	unmet    *Unmet
	refused  error
}

// NewAttempt resolves a transfer's participants: its legs, its effects, and the transfer that it reverses, in this order. It fails with
// ErrForeign if one is not registered here.
func (s *Store) NewAttempt(t Transfer, owner string) (*Attempt, error) {
	w := &Attempt{Transfer: t, Owner: owner, participants: make([]participant, 0, len(t.Legs)+len(t.Effects)+1)}
	for _, leg := range t.Legs {
		l := s.ledgers[leg.Ledger]
		if l == nil || l.namespace != leg.Namespace {
			return nil, unregistered(Address{Name: leg.Ledger}, leg.Namespace)
		}
		id, err := s.ids.Encode(leg.Account)
		if err != nil {
			return nil, err
		}
		w.participants = append(w.participants, participant{key: l.subject(id), leg: leg, id: id})
	}
	for _, e := range t.Effects {
		p, err := s.effectParticipant(e)
		if err != nil {
			return nil, err
		}
		w.participants = append(w.participants, p)
	}
	if t.Reverses != "" {
		p, err := s.originalParticipant(t)
		if err != nil {
			return nil, err
		}
		w.participants = append(w.participants, p)
	}
	w.nameMarkers()
	return w, nil
}

// nameMarkers sets the paths of the transfer's markers.
func (w *Attempt) nameMarkers() {
	var pending, path string
	for i := range w.participants {
		p := &w.participants[i]
		if fields := p.key.ledger.fields; fields.Pending != pending {
			pending, path = fields.Pending, fields.Pending+"."+markerKey(w.Transfer.ID)
		}
		p.marker = path
	}
}

// Participants returns how many documents the transfer touches.
func (w *Attempt) Participants() int { return len(w.participants) }

// reserves returns how many of them, the last ones, are documents: of effects, or the transfer that this one reverses.
func (w *Attempt) reserves() int { return len(w.participants) - len(w.Transfer.Legs) }

// Start completes how an execution begins by what its transfer is.
func (w *Attempt) Start(start protocol.Start) protocol.Start {
	start.Reserve, start.Reversal = w.reserves(), w.Transfer.Reverses != ""
	return start
}

// Name tells a participant.
func (w *Attempt) Name(participant int) string {
	p := &w.participants[participant]
	switch {
	case p.effect != nil:
		return "document " + words.Quote(p.leg.Account) + " of " + words.Quote(p.leg.Ledger)
	case p.leg.Ledger != "":
		return "account " + words.Quote(p.leg.Account) + " of ledger " + words.Quote(p.leg.Ledger)
	}
	return "account " + words.Quote(p.leg.Account)
}

// unregistered tells what to register, and how.
func unregistered(place Address, namespace string) error {
	option := "WithLedger"
	switch {
	case place.Documents:
		option = "WithDocuments"
	case place.Name == "":
		option = "WithAccounts"
	}
	return fmt.Errorf("%s, the collection %s: %w: see %s", place, words.Clip(namespace), ErrForeign, option)
}

// subject names a document. The IDs of accounts are all of one kind, those of other documents may be of any.
func (l *ledger) subject(id bson.RawValue) Subject {
	if l.documents {
		return Subject{l, string(append([]byte{byte(id.Type)}, id.Value...))}
	}
	return Subject{l, string(id.Value)}
}

// CommandLimit is how long one command may take. After it its answer counts as Unknown.
const CommandLimit = 5 * time.Second

// detached returns a context without the caller's session: our writes are never part of a transaction of
// theirs, which could be rolled back after we have said that money moved.
func detached(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }
