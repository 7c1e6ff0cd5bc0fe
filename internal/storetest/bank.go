// Package storetest opens a Bank for a test: the store and all the rooms around it, on a
// database of the test's own, with a log of the commands that they send.
//
// A test opens accounts with [Bank.Put], makes an attempt with [Bank.Attempt] or
// [Bank.Claimed], performs operations on it with [Bank.On], [Bank.All] and
// [Bank.Applied], and compares the stored documents by [Bank.Has]. The functions [At],
// [About], [PrepareWith], [Claim], [Decide] and [Finish] make operations.
//
// Tests of the rooms that Bank opens are in external packages (history_test, not
// history), because this package imports those rooms.
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
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Bank is a store on a database of its own.
// It has two ledgers: "" in the collection accounts, and "eu" in accounts_eu.
type Bank struct {
	// T is the test that the Bank belongs to.
	T *testing.T
	// DB is the database for the test's own reads and writes.
	// What goes through it is not logged, and no failpoint of Failing applies to it.
	DB *mongo.Database
	// Store is what the test is about: the store, and the rooms on the same catalog.
	Store *Rooms
	// Log has the commands that Store has sent.
	Log *CommandLog
	// App is the application name of Store's client. Failpoints are limited to it.
	App string
}

// StandardFields are the field names that a coordinator takes by default.
func StandardFields() document.Fields {
	return document.Fields{
		Balance: "balance", Pending: "pending", Fence: "fence",
		Floor: "floor", Currency: "currency", Closed: "closed", Frozen: "frozen",
	}
}

// New returns a Bank on a new database.
// Each change is applied to the configuration before the rooms are opened.
func New(t *testing.T, changes ...func(*Config)) *Bank {
	t.Helper()
	return NewOf(t, options.Client(), changes...)
}

// NewOf returns a Bank like New, whose store works through a client with the given
// options.
func NewOf(t *testing.T, client *options.ClientOptions, changes ...func(*Config)) *Bank {
	t.Helper()
	b := &Bank{T: t, DB: mongotest.Database(t), Log: NewCommandLog()}
	b.App = b.DB.Name()
	logged := options.Client().SetAppName(b.App).SetMonitor(b.Log.Monitor())
	db := mongotest.Client(t, client, logged).Database(b.DB.Name())
	config := Config{
		Transfers: db.Collection("transfers"),
		Ledgers: map[string]*mongo.Collection{
			"": db.Collection("accounts"), "eu": db.Collection("accounts_eu"),
		},
		Fields:      StandardFields(),
		MarkerLimit: 100,
		FenceBytes:  fences.LeastMemory,
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

// Fence0 returns the fence that an Account has before a test replaces it.
func Fence0() bson.ObjectID { return bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} }

// Account returns the document of a usable account with a balance of 100.
// The changes replace its fields; a value of nil removes the field.
func Account(id any, changes bson.M) bson.M {
	account := bson.M{
		"_id": id, "balance": int64(100), "pending": bson.M{}, "fence": Fence0(), "note": "kept",
	}
	for key, value := range changes {
		if value == nil {
			delete(account, key)
			continue
		}
		account[key] = value
	}
	return account
}

// Put stores accounts in the default ledger.
func (b *Bank) Put(accounts ...bson.M) { b.T.Helper(); b.PutIn("accounts", accounts...) }

// PutIn stores documents in a collection.
func (b *Bank) PutIn(collection string, documents ...bson.M) {
	b.T.Helper()
	_, err := b.DB.Collection(collection).InsertMany(b.T.Context(), documents)
	require.NoError(b.T, err)
}

// Raw returns a document as it is stored, or nil where none has the ID.
func (b *Bank) Raw(collection string, id any) bson.Raw {
	b.T.Helper()
	document, err := b.DB.Collection(collection).FindOne(b.T.Context(), bson.M{"_id": id}).Raw()
	if wire.NotFound(err) {
		return nil
	}
	require.NoError(b.T, err)
	return document
}

// Has requires that a document is stored with exactly the given fields.
// Their order doesn't matter, their types do.
func (b *Bank) Has(collection string, want bson.M) {
	b.T.Helper()
	require.Equal(b.T, want, AsMap(b.T, b.Raw(collection, want["_id"])))
}

// Change updates one document past the store, as another program would.
func (b *Bank) Change(collection string, id any, update bson.M) {
	b.T.Helper()
	result, err := b.DB.Collection(collection).UpdateOne(b.T.Context(), bson.M{"_id": id}, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.MatchedCount)
}

// AsMap decodes a document into maps, which compare without the order of the fields.
func AsMap(t *testing.T, document bson.Raw) bson.M {
	t.Helper()
	require.NotNil(t, document, "the document does not exist")
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(document)))
	decoder.DefaultDocumentM()
	m := bson.M{}
	require.NoError(t, decoder.Decode(&m))
	return m
}

// Leg returns a movement of units in the default ledger.
func (b *Bank) Leg(account string, units int64) document.Leg {
	return b.LegIn("", account, money.Units(units))
}

// LegIn returns a movement of an amount in the given ledger.
func (b *Bank) LegIn(ledger, account string, amount money.Amount) document.Leg {
	return document.Leg{
		Ledger: ledger, Namespace: b.Store.Namespace(ledger), Account: account, Amount: amount,
	}
}

// Attempt returns an attempt at a transfer that is not stored.
func (b *Bank) Attempt(id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	t := document.Transfer{ID: id, Legs: legs, Digest: document.Digest{Format: document.Format, Sum: []byte{1, 42}}}
	a, err := b.Store.NewAttempt(t, "owner of "+id)
	require.NoError(b.T, err)
	return a
}

// Claimed returns an attempt at a transfer that it has stored as Preparing.
func (b *Bank) Claimed(id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	a := b.Attempt(id, legs...)
	require.Equal(b.T, protocol.Applied, b.On(a, Claim(protocol.Insert)).Result, a.Cause)
	return a
}

// On performs one operation and returns its answer.
func (b *Bank) On(a *mongostore.Attempt, op protocol.Operation) protocol.Answer {
	b.T.Helper()
	return b.All(a, op)[0]
}

// All performs operations as one round and returns their answers.
func (b *Bank) All(a *mongostore.Attempt, operations ...protocol.Operation) []protocol.Answer {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 20*time.Second)
	defer cancel()
	return Perform(ctx, b.Store, a, operations...)
}

// Perform performs operations of one attempt, as the engine would in one round: those of
// each lane together, and none that the cache answers. It returns their answers.
func Perform(ctx context.Context, s *Rooms, a *mongostore.Attempt, operations ...protocol.Operation) []protocol.Answer {
	calls := make([]*mongostore.Call, len(operations))
	lanes := map[mongostore.Lane][]*mongostore.Call{}
	for i, op := range operations {
		calls[i] = &mongostore.Call{Attempt: a, Op: op}
		if answer, known := s.AnswerFromCache(a, op); known {
			calls[i].Answer = answer
			continue
		}
		lane := mongostore.LaneOf(a, op)
		lanes[lane] = append(lanes[lane], calls[i])
	}
	for lane, calls := range lanes {
		s.Perform(ctx, lane, calls)
	}
	answers := make([]protocol.Answer, len(operations))
	for i, c := range calls {
		answers[i] = c.Answer
		if c.Cause != nil {
			a.Cause = c.Cause
		}
	}
	return answers
}

// Ready reads the fences of all participants and returns the prepares that name them.
func (b *Bank) Ready(a *mongostore.Attempt) []protocol.Operation {
	b.T.Helper()
	var reads, prepares []protocol.Operation
	for i := range a.Participants() {
		reads = append(reads, At(protocol.ReadFence, i))
	}
	for i, answer := range b.All(a, reads...) {
		require.Equal(b.T, protocol.Applied, answer.Result, a.Cause)
		prepares = append(prepares, PrepareWith(i, answer.Facts.Fence))
	}
	return prepares
}

// Prepared prepares all participants and returns the attempt.
func (b *Bank) Prepared(a *mongostore.Attempt) *mongostore.Attempt {
	b.T.Helper()
	b.Applied(a, b.Ready(a)...)
	return a
}

// Applied performs a round and requires that each operation is applied.
func (b *Bank) Applied(a *mongostore.Attempt, operations ...protocol.Operation) {
	b.T.Helper()
	for i, answer := range b.All(a, operations...) {
		require.Equal(b.T, protocol.Applied, answer.Result, "operation %d: %v", i, a.Cause)
	}
}

// Failing makes the server fail the given commands of the Bank's store, at most the given
// number of times, until the test ends or stop is called. The option how says in which
// way they fail. The server has one such failpoint for all its clients: tests that use it
// don't run in parallel.
func (b *Bank) Failing(times int, commands []string, how bson.M) (stop func()) {
	b.T.Helper()
	data := bson.M{"failCommands": commands, "appName": b.App}
	maps.Copy(data, how)
	b.Failpoint(bson.M{"times": times}, data)
	stop = func() { b.Failpoint("off", bson.M{}) }
	b.T.Cleanup(stop)
	return stop
}

// Failpoint sets the server's failpoint for commands. It says nothing about whose
// commands fail: see Failing.
func (b *Bank) Failpoint(mode any, data bson.M) {
	b.T.Helper()
	b.reserveFailpoint()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(b.T, b.DB.Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
	}).Err())
}

// reserveFailpoint keeps the failpoint, of which a server has one, for this bank until
// its test ends.
// Other packages are tested on the same server meanwhile.
func (b *Bank) reserveFailpoint() {
	b.T.Helper()
	const longest = 5 * time.Minute
	reserved := b.DB.Client().Database("storetest").Collection("reserved")
	require.Eventually(b.T, func() bool {
		now := time.Now()
		_, err := reserved.UpdateOne(context.Background(),
			bson.M{"_id": "failCommand", "$or": bson.A{bson.M{"owner": b.DB.Name()}, bson.M{"until": bson.M{"$lt": now}}}},
			bson.M{"$set": bson.M{"owner": b.DB.Name(), "until": now.Add(longest)}}, options.UpdateOne().SetUpsert(true))
		return err == nil // there is a duplicate key where another bank has it
	}, longest, 10*time.Millisecond, "another test has the server's failpoint")
	b.T.Cleanup(func() {
		_, err := reserved.DeleteOne(context.Background(), bson.M{"_id": "failCommand", "owner": b.DB.Name()})
		require.NoError(b.T, err)
	})
}
