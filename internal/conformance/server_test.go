package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/simulate"
	"github.com/mongotransfer/transfer/internal/wire"
)

// server is a database for the checks of one property.
type server struct {
	db        *mongo.Database
	remembers bool // its stores may answer from memory
}

func newServer(t *testing.T) *server { return &server{db: mongotest.Database(t)} }

func (s *server) transfers() *mongo.Collection { return s.db.Collection("transfers") }

func (s *server) accounts(eu bool) *mongo.Collection {
	if eu {
		return s.db.Collection("accounts_eu")
	}
	return s.db.Collection("accounts")
}

func (s *server) orders() *mongo.Collection { return s.db.Collection(orders) }

// transferIDs are the IDs of the transfers, and markerKeys their encoding in an account's
// pending map.
func transferIDs() []string { return []string{"order-17", "v1.0 $%", "42"} }
func markerKeys() []string  { return []string{"order-17", "v1%2E0 %24%25", "%342"} }

func accountIDs() []string { return []string{"alice", "bob", "carol"} }

func ledger(eu bool) string {
	if eu {
		return "eu"
	}
	return ""
}

// ownerName returns an owner's nonce.
// Different transfers have the same nonces, which never happens elsewhere: only the ID
// distinguishes the transfers.
func (s scene) ownerName(owner int) string { return fmt.Sprintf("owner-%d", (owner-1)%s.owners) }

// bank is what one check works on: documents, the stores of two processes, and their
// attempts.
type bank struct {
	*server
	t        *rapid.T
	scene    scene
	names    renaming
	stores   [2]*mongostore.Store
	catalogs [2]*collections.Catalog // of the stores
	attempts []*mongostore.Attempt   // by owner
	events   document.Events         // that are left in the outboxes
}

// open stores the documents that a check begins with, in place of the old ones.
func (s *server) open(t *rapid.T, sc scene) *bank {
	b := &bank{server: s, t: t, scene: sc, names: newRenaming()}
	if rapid.Bool().Draw(t, "events") {
		b.events = document.Events{Failed: true, Held: true, Succeeded: true}
	}
	for i := range b.stores {
		catalog, err := collections.New(collections.Config{
			Transfers: s.transfers(),
			Ledgers:   map[string]*mongo.Collection{"": s.accounts(false), "eu": s.accounts(true)},
			Documents: map[string]*mongo.Collection{orders: s.orders()},
			Fields: document.Fields{
				Balance: "balance", Pending: "pending", Fence: "fence", Floor: "floor", Currency: "currency",
				Closed: "closed", Frozen: "frozen",
			},
			Events: b.events,
			Now:    time.Now,
		})
		require.NoError(t, err)
		limits := mongostore.Limits{
			Markers: sc.markerLimit, FenceBytes: fences.LeastMemory, Shared: sc.shared,
			Outbox: outbox.NewHand(catalog.Events, time.Now),
		}
		store, err := mongostore.New(catalog, retention.New(catalog, 0), limits)
		require.NoError(t, err)
		b.stores[i], b.catalogs[i] = store, catalog
	}
	// The last of these waits until a majority has dropped all old documents: no later
	// read may be older than that.
	for _, c := range []*mongo.Collection{quick(s.orders()), quick(s.accounts(false)), quick(s.accounts(true)), s.transfers()} {
		_, err := c.DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
	}
	for i, a := range sc.accounts {
		if a.fence.Type != 0 {
			b.names.learn(a.Fence, fenceOf(a.fence))
		}
		if !a.Missing {
			b.put(i, a.document(i, sc.coin))
		}
	}
	for i, initiated := range sc.initiated {
		if initiated {
			transfer := b.transfer(i)
			result, err := b.stores[0].InsertInitiated(t.Context(), &transfer)
			require.NoError(t, err)
			require.Equal(t, protocol.Applied, result)
		}
	}
	b.age()
	return b
}

// quick returns a collection for writes that need not last.
func quick(c *mongo.Collection) *mongo.Collection {
	return c.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 1}))
}

// document returns an account's document as a check finds it.
func (a given) document(i int, c coin) bson.D {
	if a.paper != nil {
		return a.paperDocument()
	}
	d := bson.D{{Key: "_id", Value: accountIDs()[i]}, {Key: "balance", Value: c.stored(a.Balance, a.dress)}, {Key: "note", Value: "kept"}}
	if a.dress == markerList {
		d = append(d, bson.E{Key: "pending", Value: bson.A{}})
	}
	if a.Closed {
		d = append(d, bson.E{Key: "closed", Value: true})
	}
	if a.Frozen {
		d = append(d, bson.E{Key: "frozen", Value: true})
	}
	if a.floor != nil {
		d = append(d, bson.E{Key: "floor", Value: a.floor})
	}
	if a.currency != nil {
		d = append(d, bson.E{Key: "currency", Value: a.currency})
	}
	if a.fence.Type != 0 {
		d = append(d, bson.E{Key: "fence", Value: a.fence})
	}
	return d
}

// transfer returns a transfer as it is requested.
// All transfers have one digest, as if they were the same request: only the ID
// distinguishes them.
func (b *bank) transfer(i int) document.Transfer {
	digest := document.Digest{Format: document.Format, Sum: []byte{1}}
	t := document.Transfer{ID: transferIDs()[i], Currency: b.scene.currency, Digest: digest, Hold: b.scene.holds[i]}
	b.addEffects(&t, i)
	for _, leg := range b.scene.plans[i] {
		if onPaper(leg) {
			continue
		}
		name := ledger(b.scene.accounts[leg.Account].eu)
		t.Legs = append(t.Legs, document.Leg{
			Ledger: name, Namespace: wire.NamespaceOf(b.accounts(name != "")),
			Account: accountIDs()[leg.Account], Amount: b.scene.coin.amount(leg.Amount),
			Currency: b.scene.accounts[leg.Account].names,
		})
	}
	return t
}

// store returns the store of an owner: half of each transfer's executors work in another
// process than the other half.
func (b *bank) store(owner int) *mongostore.Store {
	return b.stores[(owner-1)%b.scene.owners%len(b.stores)]
}

func describe(r protocol.Refusal) string { return fmt.Sprintf("%s at %d", r.Reason, r.Participant) }

func (b *bank) newAttempt(owner int, transfer document.Transfer) *mongostore.Attempt {
	w, err := b.store(owner).NewAttempt(transfer, b.scene.ownerName(owner))
	require.NoError(b.t, err)
	w.Describe, w.HoldFor = describe, time.Hour
	return w
}

// lanes returns the indexes of the messages that share a command: those of one store and
// one lane.
func (b *bank) lanes(batch []simulate.Message) [][]int {
	type command struct {
		store *mongostore.Store
		lane  mongostore.Lane
	}
	var lanes [][]int
	known := map[command]int{}
	for i, message := range batch {
		c := command{b.store(message.Owner), mongostore.LaneOf(b.attempts[message.Owner], message.Op)}
		at, ok := known[c]
		if !ok {
			at = len(lanes)
			known[c], lanes = at, append(lanes, nil)
		}
		lanes[at] = append(lanes[at], i)
	}
	return lanes
}

// perform lets a store perform messages of one lane.
func (b *bank) perform(batch []simulate.Message) []protocol.Answer {
	b.askTheTime()
	requests := make([]*mongostore.Call, len(batch))
	for i, message := range batch {
		requests[i] = b.request(b.attempts[message.Owner], message.Op)
	}
	return b.ask(b.store(batch[0].Owner), requests...)
}

// askTheTime has both stores know the server's time where there are events: a store that
// doesn't sends what leaves one by a command of its own, and the others before that.
func (b *bank) askTheTime() {
	if !b.events.Any() {
		return
	}
	for _, c := range b.catalogs {
		_, err := c.ReachedTime(b.t.Context())
		require.NoError(b.t, err)
	}
}

// request draws up a call of an operation, whose fence has the model's name.
func (b *bank) request(w *mongostore.Attempt, op protocol.Operation) *mongostore.Call {
	if isOriginal(w, op) {
		op.Fence = b.names.originalToStore(op.Fence)
	} else {
		op.Fence = b.names.toStore(op.Fence)
	}
	return &mongostore.Call{Attempt: w, Op: op}
}

// journal keeps the server's journal busy until stop is called, if that takes long.
// On an idle server a linearizable read waits up to 100 ms for the next flush.
func (b *bank) journal() (stop func()) {
	const long = 3 * time.Millisecond
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	flushed := b.db.Collection("journal").Clone(options.Collection().SetWriteConcern(writeconcern.Journaled()))
	go func() {
		defer close(done)
		timer := time.NewTimer(long)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		for ctx.Err() == nil {
			_, _ = flushed.InsertOne(ctx, bson.D{}) // what becomes of it doesn't matter
		}
	}()
	return func() { cancel(); <-done }
}

// ask lets a store answer calls of one lane, from memory if it can and may.
// The answers are in the model's terms.
func (b *bank) ask(store *mongostore.Store, requests ...*mongostore.Call) []protocol.Answer {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	first := requests[0]
	if first.Op.Kind == protocol.Look || first.Op.Kind == protocol.LookTransfer {
		defer b.journal()()
	}
	var sent []*mongostore.Call
	for _, r := range requests {
		known := false
		if b.remembers {
			r.Answer, known = store.AnswerFromCache(r.Attempt, r.Op)
		}
		if !known {
			sent = append(sent, r)
		}
	}
	if len(sent) > 0 {
		store.Perform(ctx, mongostore.LaneOf(first.Attempt, first.Op), sent)
	}
	answers := make([]protocol.Answer, len(requests))
	for i, r := range requests {
		answers[i] = r.Answer
		if isOriginal(r.Attempt, r.Op) {
			answers[i].Facts.Fence = b.names.originalToModel(answers[i].Facts.Fence)
			continue
		}
		answers[i].Facts.Fence = b.names.toModel(answers[i].Facts.Fence)
	}
	return answers
}

// Changes from outside.
// A majority has stored each of them when it returns, as with each write of the stores.

func (b *bank) put(account int, document any) {
	_, err := b.at(account).InsertOne(b.t.Context(), document)
	require.NoError(b.t, err)
}

// remove deletes an account and returns what it was.
func (b *bank) remove(account int) bson.Raw {
	document, err := b.at(account).FindOneAndDelete(b.t.Context(), b.byID(account)).Raw()
	require.NoError(b.t, err)
	return document
}

// read returns a participant's document.
func (b *bank) read(account int) bson.Raw {
	document, err := b.at(account).FindOne(b.t.Context(), b.byID(account)).Raw()
	require.NoError(b.t, err)
	return document
}

func (b *bank) replace(account int, document any) {
	_, err := b.at(account).ReplaceOne(b.t.Context(), b.byID(account), document)
	require.NoError(b.t, err)
}

// setExpiry sets when a hold expires.
func (b *bank) setExpiry(transfer int, at time.Time) {
	_, err := b.transfers().UpdateOne(b.t.Context(), bson.M{"_id": transferIDs()[transfer]}, bson.M{"$set": bson.M{"expiresAt": at}})
	require.NoError(b.t, err)
}

// at returns the collection of a participant.
func (b *bank) at(account int) *mongo.Collection {
	switch a := b.scene.accounts[account]; {
	case a.paper == nil:
		return b.accounts(a.eu)
	case a.paper.reversed:
		return b.transfers()
	}
	return b.orders()
}

func (b *bank) set(account int, field string, value any) {
	_, err := b.at(account).UpdateOne(b.t.Context(), b.byID(account), bson.M{"$set": bson.M{field: value}})
	require.NoError(b.t, err)
}

func (b *bank) byID(account int) bson.M {
	if p := b.scene.accounts[account].paper; p != nil {
		return bson.M{"_id": p.storedID}
	}
	return bson.M{"_id": accountIDs()[account]}
}

// longAgo is a time when no transfer was modified.
func longAgo() time.Time { return time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) }

// age sets back the time of each transfer's last change, so that the next change shows,
// and a takeover need not wait.
func (b *bank) age() {
	_, err := quick(b.transfers()).UpdateMany(b.t.Context(), bson.M{"lastModified": bson.M{"$ne": longAgo()}},
		bson.M{"$set": bson.M{"lastModified": longAgo()}})
	require.NoError(b.t, err)
}
