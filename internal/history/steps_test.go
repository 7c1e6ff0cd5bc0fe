package history_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// steps runs functions before certain commands of a store, which are counted over all of
// its clients.
type steps struct {
	mu     sync.Mutex
	n      int
	before map[int][]func()
	stored func() // waits until the steps are stored for good
}

func (s *steps) monitor() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) {
		s.mu.Lock()
		due := s.before[s.n]
		s.n++
		s.mu.Unlock()
		for _, step := range due {
			step()
		}
		if len(due) > 0 {
			s.stored()
		}
	}})
}

// begin makes the next command number 0. The returned function ends the steps, and
// returns how many commands there were.
func (s *steps) begin(before map[int][]func()) (end func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.before = 0, before
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.before = nil
		return s.n
	}
}

// newStepBank returns a bank without accounts. If it is apart, the store reaches the
// accounts through another client than the transfers, and has to assume that they are in
// another cluster.
func newStepBank(t *testing.T, apart bool) (*bank, *steps) {
	t.Helper()
	s := &steps{}
	b := newBank(t, func(c *storetest.Config) {
		name := c.Transfers.Database().Name()
		db := mongotest.Client(t, s.monitor()).Database(name)
		c.Transfers = db.Collection("transfers")
		if apart {
			db = mongotest.Client(t, s.monitor()).Database(name)
		}
		c.Ledgers = map[string]*mongo.Collection{"": db.Collection("accounts")}
	})
	require.NoError(t, b.Store.Setup(t.Context()))
	b.flush()
	s.stored = b.stored
	return b, s
}

// stored waits until a majority has everything that was written before.
func (b *bank) stored() {
	b.T.Helper()
	durable := b.DB.Collection("flushed", options.Collection().SetWriteConcern(writeconcern.Majority()))
	_, err := durable.InsertOne(b.T.Context(), bson.M{})
	require.NoError(b.T, err)
}

// mover takes a transfer on one account from step to step, as its executor would. It
// posts a part of a hold.
type mover struct {
	*bank
	id, account  string
	held, posted int64
	hold         bool
}

// update makes one write of a step. It doesn't wait until the write is stored for good:
// all of that counts as time that the command takes before which the step is made.
func (m mover) update(collection, id string, update bson.M) {
	m.T.Helper()
	hasty := options.Collection().SetWriteConcern(writeconcern.W1())
	upsert := options.UpdateOne().SetUpsert(true)
	_, err := m.DB.Collection(collection, hasty).UpdateOne(m.T.Context(), bson.M{"_id": id}, update, upsert)
	require.NoError(m.T, err)
}

func (m mover) prepare() {
	m.update("transfers", m.id, bson.M{"$set": bson.M{"state": "Preparing", "held": m.hold, "legs": bson.A{
		bson.M{"ledger": "", "account": m.account, "amount": m.held}, bson.M{"ledger": "", "account": "bob", "amount": -m.held},
	}}})
	m.update("accounts", m.account, bson.M{"$set": bson.M{"pending." + m.id: m.held}, "$inc": bson.M{"balance": min(m.held, 0)}})
}

func (m mover) commit() {
	m.update("transfers", m.id, bson.M{
		"$set": bson.M{"state": "Committed", "posted": m.posted}, "$currentDate": bson.M{"committedAt": true},
	})
}

func (m mover) settle() {
	back := m.posted // of a credit, what was posted
	if m.held < 0 {
		back = -m.held - m.posted // of a debit, what was not posted
	}
	m.update("accounts", m.account, bson.M{"$unset": bson.M{"pending." + m.id: ""}, "$inc": bson.M{"balance": back}})
}

// replace stores the account once more as it is, as a whole.
func (m mover) replace() {
	m.T.Helper()
	hasty := options.Collection().SetWriteConcern(writeconcern.W1())
	account := storetest.AsMap(m.T, m.Raw("accounts", m.account))
	account["replaced"] = bson.NewObjectID()
	_, err := m.DB.Collection("accounts", hasty).ReplaceOne(m.T.Context(), bson.M{"_id": m.account}, account)
	require.NoError(m.T, err)
}
