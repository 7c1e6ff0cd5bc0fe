// Package storetest opens a store, and all the rooms around it, on a database of a test's own, with a log of what it sends.
package storetest

import (
	"bytes"
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Bank is a store on a database of its own, with a log of what it sends. It has two ledgers, "" and "eu".
type Bank struct {
	t     *testing.T
	DB    *mongo.Database // for the test's own reads and writes: not logged, no failpoints
	Store *Rooms
	Log   *CommandLog
	App   string // by which failpoints tell the store's client
}

// StandardFields are the field names that a coordinator takes by default.
func StandardFields() document.Fields {
	return document.Fields{Balance: "balance", Pending: "pending", Fence: "fence", Floor: "floor", Currency: "currency", Closed: "closed"}
}

func New(t *testing.T, changes ...func(*Config)) *Bank {
	t.Helper()
	return NewOf(t, options.Client(), changes...)
}

// NewOf returns a Bank whose store works through a client with the given options.
func NewOf(t *testing.T, client *options.ClientOptions, changes ...func(*Config)) *Bank {
	t.Helper()
	b := &Bank{t: t, DB: mongotest.Database(t), Log: NewCommandLog()}
	b.App = b.DB.Name()
	db := mongotest.Client(t, client, options.Client().SetAppName(b.App).SetMonitor(b.Log.Monitor())).Database(b.DB.Name())
	config := Config{
		Transfers:   db.Collection("transfers"),
		Ledgers:     map[string]*mongo.Collection{"": db.Collection("accounts"), "eu": db.Collection("accounts_eu")},
		Fields:      StandardFields(),
		MarkerLimit: 100,
		FenceBytes:  mongostore.LeastFenceMemory,
		Now:         time.Now,
	}
	for _, change := range changes {
		change(&config)
	}
	var err error
	b.Store, err = NewRooms(config)
	require.NoError(t, err)
	return b
}

// Fence0 is the fence that accounts have in these tests before anybody replaces it.
func Fence0() bson.ObjectID { return bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} }

// Account returns a usable account with a balance of 100, changed: a value of nil removes the field.
func Account(id any, changes bson.M) bson.M {
	document := bson.M{"_id": id, "balance": int64(100), "pending": bson.M{}, "fence": Fence0(), "note": "kept"}
	for key, value := range changes {
		if value == nil {
			delete(document, key)
			continue
		}
		document[key] = value
	}
	return document
}

// put stores accounts in the default ledger.
func (b *Bank) Put(accounts ...bson.M) { b.t.Helper(); b.PutIn("accounts", accounts...) }

func (b *Bank) PutIn(collection string, documents ...bson.M) {
	b.t.Helper()
	_, err := b.DB.Collection(collection).InsertMany(b.t.Context(), documents)
	require.NoError(b.t, err)
}

// raw returns a document as it is stored, nil if there is none.
func (b *Bank) Raw(collection string, id any) bson.Raw {
	b.t.Helper()
	document, err := b.DB.Collection(collection).FindOne(b.t.Context(), bson.M{"_id": id}).Raw()
	if wire.NotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return document
}

// has asserts that a document is stored, and nothing else in it.
func (b *Bank) Has(collection string, want bson.M) {
	b.t.Helper()
	require.Equal(b.t, want, AsMap(b.t, b.Raw(collection, want["_id"])))
}

// change changes a document behind the store's back.
func (b *Bank) Change(collection string, id any, update bson.M) {
	b.t.Helper()
	result, err := b.DB.Collection(collection).UpdateOne(b.t.Context(), bson.M{"_id": id}, update)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.MatchedCount)
}

// AsMap decodes a document so that the order of its fields doesn't count, and the types do.
func AsMap(t *testing.T, document bson.Raw) bson.M {
	t.Helper()
	require.NotNil(t, document, "the document is not there")
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(document)))
	decoder.DefaultDocumentM()
	m := bson.M{}
	require.NoError(t, decoder.Decode(&m))
	return m
}

// leg returns a movement of units in the default ledger.
func (b *Bank) Leg(account string, units int64) document.Leg {
	return b.LegIn("", account, money.Units(units))
}

func (b *Bank) LegIn(ledger, account string, amount money.Amount) document.Leg {
	return document.Leg{Ledger: ledger, Namespace: b.Store.Namespace(ledger), Account: account, Amount: amount}
}

// work returns a work on a transfer that isn't stored.
func (b *Bank) Attempt(id string, legs ...document.Leg) *mongostore.Attempt {
	b.t.Helper()
	w, err := b.Store.NewAttempt(document.Transfer{ID: id, Legs: legs, Digest: []byte{1, 42}}, "owner of "+id)
	require.NoError(b.t, err)
	return w
}

// claimed returns a work on a transfer that it has stored as Preparing.
func (b *Bank) Claimed(id string, legs ...document.Leg) *mongostore.Attempt {
	b.t.Helper()
	w := b.Attempt(id, legs...)
	require.Equal(b.t, protocol.Applied, b.On(w, Claim(protocol.Insert)).Result, w.Cause)
	return w
}

// on performs one operation.
func (b *Bank) On(w *mongostore.Attempt, op protocol.Operation) protocol.Answer {
	b.t.Helper()
	return b.All(w, op)[0]
}

// all performs operations as one round.
func (b *Bank) All(w *mongostore.Attempt, operations ...protocol.Operation) []protocol.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	return Perform(ctx, b.Store, w, operations...)
}

// Perform performs operations of one work, those of each lane together.
func Perform(ctx context.Context, s *Rooms, w *mongostore.Attempt, operations ...protocol.Operation) []protocol.Answer {
	requests := make([]*mongostore.Call, len(operations))
	lanes := map[mongostore.Lane][]*mongostore.Call{}
	for i, op := range operations {
		requests[i] = &mongostore.Call{Attempt: w, Op: op}
		if answer, known := s.AnswerFromCache(w, op); known {
			requests[i].Answer = answer
			continue
		}
		lane := mongostore.LaneOf(w, op)
		lanes[lane] = append(lanes[lane], requests[i])
	}
	for lane, together := range lanes {
		s.Perform(ctx, lane, together)
	}
	answers := make([]protocol.Answer, len(operations))
	for i, r := range requests {
		answers[i] = r.Answer
		if r.Cause != nil {
			w.Cause = r.Cause
		}
	}
	return answers
}

// ready reads the fences of all participants and returns their prepares.
func (b *Bank) Ready(w *mongostore.Attempt) []protocol.Operation {
	b.t.Helper()
	var reads, prepares []protocol.Operation
	for i := range w.Participants() {
		reads = append(reads, At(protocol.ReadFence, i))
	}
	for i, answer := range b.All(w, reads...) {
		require.Equal(b.t, protocol.Applied, answer.Result, w.Cause)
		prepares = append(prepares, PrepareWith(i, answer.Facts.Fence))
	}
	return prepares
}

// prepared prepares all participants.
func (b *Bank) Prepared(w *mongostore.Attempt) *mongostore.Attempt {
	b.t.Helper()
	b.Applied(w, b.Ready(w)...)
	return w
}

// applied performs a round in which everything has to be applied.
func (b *Bank) Applied(w *mongostore.Attempt, operations ...protocol.Operation) {
	b.t.Helper()
	for i, answer := range b.All(w, operations...) {
		require.Equal(b.t, protocol.Applied, answer.Result, "operation %d: %v", i, w.Cause)
	}
}

// failing makes the server fail commands of the Bank's store until the test ends or the returned function is called. The server has
// one such failpoint for everybody, so tests that use it don't run in parallel.
func (b *Bank) Failing(times int, commands []string, how bson.M) (stop func()) {
	b.t.Helper()
	data := bson.M{"failCommands": commands, "appName": b.App}
	maps.Copy(data, how)
	b.Failpoint(bson.M{"times": times}, data)
	stop = func() { b.Failpoint("off", bson.M{}) }
	b.t.Cleanup(stop)
	return stop
}

func (b *Bank) Failpoint(mode any, data bson.M) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(b.t, b.DB.Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
	}).Err())
}
