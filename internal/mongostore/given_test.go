package mongostore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// bank is a store on a database of its own, with a log of what it sends. It has two ledgers, "" and "eu".
type bank struct {
	t     *testing.T
	db    *mongo.Database // for the test's own reads and writes: not logged, no failpoints
	store *rooms
	log   *commandLog
	app   string // by which failpoints tell the store's client
}

// standardFields are the field names that a coordinator takes by default.
func standardFields() document.Fields {
	return document.Fields{Balance: "balance", Pending: "pending", Fence: "fence", Floor: "floor", Currency: "currency", Closed: "closed"}
}

func newBank(t *testing.T, changes ...func(*config)) *bank {
	t.Helper()
	return newBankOf(t, options.Client(), changes...)
}

// newBankOf returns a bank whose store works through a client with the given options.
func newBankOf(t *testing.T, client *options.ClientOptions, changes ...func(*config)) *bank {
	t.Helper()
	b := &bank{t: t, db: mongotest.Database(t), log: newCommandLog()}
	b.app = b.db.Name()
	db := mongotest.Client(t, client, options.Client().SetAppName(b.app).SetMonitor(b.log.monitor())).Database(b.db.Name())
	config := config{
		Transfers:   db.Collection("transfers"),
		Ledgers:     map[string]*mongo.Collection{"": db.Collection("accounts"), "eu": db.Collection("accounts_eu")},
		Fields:      standardFields(),
		MarkerLimit: 100,
		FenceBytes:  fences.LeastMemory,
		Now:         time.Now,
	}
	for _, change := range changes {
		change(&config)
	}
	var err error
	b.store, err = newRooms(config)
	require.NoError(t, err)
	return b
}

// fence0 is the fence that accounts have in these tests before anybody replaces it.
func fence0() bson.ObjectID { return bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} }

// account returns a usable account with a balance of 100, changed: a value of nil removes the field.
func account(id any, changes bson.M) bson.M {
	document := bson.M{"_id": id, "balance": int64(100), "pending": bson.M{}, "fence": fence0(), "note": "kept"}
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
func (b *bank) put(accounts ...bson.M) { b.t.Helper(); b.putIn("accounts", accounts...) }

func (b *bank) putIn(collection string, documents ...bson.M) {
	b.t.Helper()
	_, err := b.db.Collection(collection).InsertMany(b.t.Context(), documents)
	require.NoError(b.t, err)
}

// raw returns a document as it is stored, nil if there is none.
func (b *bank) raw(collection string, id any) bson.Raw {
	b.t.Helper()
	document, err := b.db.Collection(collection).FindOne(b.t.Context(), bson.M{"_id": id}).Raw()
	if wire.NotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return document
}

// has asserts that a document is stored, and nothing else in it.
func (b *bank) has(collection string, want bson.M) {
	b.t.Helper()
	require.Equal(b.t, want, asMap(b.t, b.raw(collection, want["_id"])))
}

// change changes a document behind the store's back.
func (b *bank) change(collection string, id any, update bson.M) {
	b.t.Helper()
	result, err := b.db.Collection(collection).UpdateOne(b.t.Context(), bson.M{"_id": id}, update)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.MatchedCount)
}

// asMap decodes a document so that the order of its fields doesn't count, and the types do.
func asMap(t *testing.T, document bson.Raw) bson.M {
	t.Helper()
	require.NotNil(t, document, "the document is not there")
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(document)))
	decoder.DefaultDocumentM()
	m := bson.M{}
	require.NoError(t, decoder.Decode(&m))
	return m
}

// leg returns a movement of units in the default ledger.
func (b *bank) leg(account string, units int64) document.Leg {
	return b.legIn("", account, money.Units(units))
}

func (b *bank) legIn(ledger, account string, amount money.Amount) document.Leg {
	return document.Leg{Ledger: ledger, Namespace: b.store.Namespace(ledger), Account: account, Amount: amount}
}

// work returns a work on a transfer that isn't stored.
func (b *bank) work(id string, legs ...document.Leg) *Attempt {
	b.t.Helper()
	a, err := b.store.NewAttempt(document.Transfer{ID: id, Legs: legs, Digest: []byte{1, 42}}, "owner of "+id)
	require.NoError(b.t, err)
	return a
}

// claimed returns a work on a transfer that it has stored as Preparing.
func (b *bank) claimed(id string, legs ...document.Leg) *Attempt {
	b.t.Helper()
	a := b.work(id, legs...)
	require.Equal(b.t, protocol.Applied, b.on(a, claim(protocol.Insert)).Result, a.Cause)
	return a
}

// on performs one operation.
func (b *bank) on(a *Attempt, op protocol.Operation) protocol.Answer {
	b.t.Helper()
	return b.all(a, op)[0]
}

// all performs operations as one round.
func (b *bank) all(a *Attempt, operations ...protocol.Operation) []protocol.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	return perform(ctx, b.store, a, operations...)
}

// perform performs operations of one work, those of each lane together.
func perform(ctx context.Context, s *rooms, a *Attempt, operations ...protocol.Operation) []protocol.Answer {
	calls := make([]*Call, len(operations))
	lanes := map[Lane][]*Call{}
	for i, op := range operations {
		calls[i] = &Call{Attempt: a, Op: op}
		if answer, known := s.AnswerFromCache(a, op); known {
			calls[i].Answer = answer
			continue
		}
		lane := LaneOf(a, op)
		lanes[lane] = append(lanes[lane], calls[i])
	}
	for lane, together := range lanes {
		s.Perform(ctx, lane, together)
	}
	answers := make([]protocol.Answer, len(operations))
	for i, call := range calls {
		answers[i] = call.Answer
		if call.Cause != nil {
			a.Cause = call.Cause
		}
	}
	return answers
}

// ready reads the fences of all participants and returns their prepares.
func (b *bank) ready(a *Attempt) []protocol.Operation {
	b.t.Helper()
	var reads, prepares []protocol.Operation
	for i := range a.participants {
		reads = append(reads, at(protocol.ReadFence, i))
	}
	for i, answer := range b.all(a, reads...) {
		require.Equal(b.t, protocol.Applied, answer.Result, a.Cause)
		prepares = append(prepares, prepareWith(i, answer.Facts.Fence))
	}
	return prepares
}

// prepared prepares all participants.
func (b *bank) prepared(a *Attempt) *Attempt {
	b.t.Helper()
	b.applied(a, b.ready(a)...)
	return a
}

// applied performs a round in which everything has to be applied.
func (b *bank) applied(a *Attempt, operations ...protocol.Operation) {
	b.t.Helper()
	for i, answer := range b.all(a, operations...) {
		require.Equal(b.t, protocol.Applied, answer.Result, "operation %d: %v", i, a.Cause)
	}
}

func at(kind protocol.Kind, participant int) protocol.Operation {
	return protocol.Operation{Kind: kind, Participant: participant}
}

func about(kind protocol.Kind) protocol.Operation { return at(kind, protocol.NoParticipant) }

func prepareWith(participant int, fence protocol.Fence) protocol.Operation {
	op := at(protocol.Prepare, participant)
	op.Fence = fence
	return op
}

func claim(how protocol.ClaimKind) protocol.Operation {
	op := about(protocol.Claim)
	op.Claim = how
	return op
}

func decide(to protocol.State, epoch int64) protocol.Operation {
	op := about(protocol.Decide)
	op.To, op.Epoch = to, epoch
	if to == protocol.Rollback {
		op.Refusal = protocol.Refusal{Reason: protocol.InsufficientFunds, Participant: 0}
	}
	return op
}

func finish(to protocol.State) protocol.Operation {
	op := about(protocol.Finish)
	op.To = to
	return op
}

func replacing(op protocol.Operation) protocol.Operation {
	op.ReplaceFence = true
	return op
}

// command is one command as the server got it and answered it.
type command struct {
	name        string
	body, reply bson.Raw // no reply if it failed
}

// commandLog is the list of the commands that a client has sent.
type commandLog struct {
	mu       sync.Mutex
	commands []*command
	pending  map[int64]*command
	then     func() // what happens after the next answer, before the driver goes on; once
}

func newCommandLog() *commandLog { return &commandLog{pending: map[int64]*command{}} }

func (l *commandLog) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			c := &command{name: e.CommandName, body: slices.Clone(e.Command)}
			l.commands, l.pending[e.RequestID] = append(l.commands, c), c
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			l.mu.Lock()
			l.pending[e.RequestID].reply = slices.Clone(e.Reply)
			l.mu.Unlock()
			l.goOn()
		},
		Failed: func(context.Context, *event.CommandFailedEvent) { l.goOn() },
	}
}

func (l *commandLog) goOn() {
	l.mu.Lock()
	then := l.then
	l.then = nil
	l.mu.Unlock()
	if then != nil {
		then()
	}
}

// whenAnswered lets something happen after the next answer.
func (l *commandLog) whenAnswered(then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then = then
}

// take returns the commands sent since the last call.
func (l *commandLog) take() []*command {
	l.mu.Lock()
	defer l.mu.Unlock()
	commands := l.commands
	l.commands = nil
	return commands
}

// names returns the names of commands, in order.
func names(commands []*command) []string {
	list := make([]string, len(commands))
	for i, c := range commands {
		list[i] = c.name
	}
	return list
}

// text returns a string of a command's body, "" if there is none at that path.
func (c *command) text(path ...string) string {
	value, _ := c.body.Lookup(path...).StringValueOK()
	return value
}

// failing makes the server fail commands of the bank's store until the test ends or the returned function is called. The server has
// one such failpoint for everybody, so tests that use it don't run in parallel.
func (b *bank) failing(times int, commands []string, how bson.M) (stop func()) {
	b.t.Helper()
	data := bson.M{"failCommands": commands, "appName": b.app}
	maps.Copy(data, how)
	b.failpoint(bson.M{"times": times}, data)
	stop = func() { b.failpoint("off", bson.M{}) }
	b.t.Cleanup(stop)
	return stop
}

func (b *bank) failpoint(mode any, data bson.M) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(b.t, b.db.Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
	}).Err())
}

// options returns the options of a client that is logged.
func (l *commandLog) options() *options.ClientOptions {
	return options.Client().SetMonitor(l.monitor())
}

func encode(document any) bson.Raw {
	raw, err := bson.Marshal(document)
	if err != nil {
		panic(err)
	}
	return raw
}

// checkCleared asserts a document in which the fence was replaced, or not.
func (b *bank) checkCleared(want bson.M, replaced bool) {
	b.t.Helper()
	if replaced {
		stored := asMap(b.t, b.raw("accounts", want["_id"]))
		_, sent := stored["fence"].(bson.ObjectID)
		_, drawn := stored["fence"].(bson.Timestamp)
		require.True(b.t, sent || drawn)
		require.NotEqual(b.t, fence0(), stored["fence"])
		want["fence"] = stored["fence"]
	}
	b.has("accounts", want)
}

// explain returns the winning plan of a find that was logged.
func (b *bank) explain(find *command) string {
	b.t.Helper()
	query := bson.D{{Key: "find", Value: find.text("find")}}
	for _, field := range []string{"filter", "sort"} {
		if value := find.body.Lookup(field); value.Type != 0 {
			query = append(query, bson.E{Key: field, Value: value})
		}
	}
	var reply struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), bson.D{{Key: "explain", Value: query}}).Decode(&reply))
	return reply.QueryPlanner.WinningPlan.String()
}

func dec(text string) money.Amount {
	amount, err := money.Parse(text)
	if err != nil {
		panic(err)
	}
	return amount
}

func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

func operationTime(value bson.RawValue) uint64 {
	seconds, number, ok := value.TimestampOK()
	if !ok {
		return 0
	}
	return uint64(seconds)<<32 | uint64(number)
}
