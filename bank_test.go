package transfer_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// bank is a database of a test's own with a coordinator over it. Each test ends with its audit.
type bank struct {
	*transfer.Coordinator
	t     *testing.T
	db    *mongo.Database
	wires []*wire // of processes that have died
}

// newBank returns a bank with accounts a, b, c … of the given balances.
func newBank(t *testing.T, balances ...int64) *bank {
	t.Helper()
	return newBankWith(t, nil, balances...)
}

func newBankWith(t *testing.T, opts []transfer.Option, balances ...int64) *bank {
	t.Helper()
	b := newBareBank(t, opts...)
	require.NoError(t, b.Setup(t.Context()))
	b.open(balances)
	return b
}

// newBareBank returns a bank without accounts and indexes.
func newBareBank(t *testing.T, opts ...transfer.Option) *bank {
	t.Helper()
	b := &bank{t: t, db: mongotest.Database(t)}
	b.Coordinator = b.coordinator(b.db, opts...)
	return b
}

// open opens accounts a, b, c … with the given balances.
func (b *bank) open(balances []int64) {
	b.t.Helper()
	for i, balance := range balances {
		_, err := b.OpenAccount(b.t.Context(), transfer.Account{ID: name(i), Balance: transfer.Units(balance)})
		require.NoError(b.t, err)
	}
}

func name(i int) string { return string(rune('a' + i)) }

// coordinator returns another coordinator, over the given handle of the bank's database.
func (b *bank) coordinator(db *mongo.Database, opts ...transfer.Option) *transfer.Coordinator {
	b.t.Helper()
	c, err := transfer.NewCoordinator(db, opts...)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { kill(c) })
	return c
}

// kill stops a coordinator where it is, as far as that is possible from inside its process.
func kill(c *transfer.Coordinator) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(now)
}

// through returns the bank's database through a client with other options.
func (b *bank) through(opts *options.ClientOptions) *mongo.Database {
	b.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()), opts)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(now) // its network may be dead: no goodbyes
	})
	return client.Database(b.db.Name())
}

// move asks for a transfer of units.
func move(id, from, to string, units int64) transfer.Request {
	return transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(units)}
}

// recoverAll takes over whatever is unfinished, at once, and requires that nothing is left but what waits for a worker.
func (b *bank) recoverAll(opts ...transfer.Option) transfer.RecoveryReport {
	b.t.Helper()
	c := b.coordinator(b.db, append([]transfer.Option{transfer.WithStallThreshold(0)}, opts...)...)
	var total transfer.RecoveryReport
	require.Eventually(b.t, func() bool {
		report, err := c.Recover(b.t.Context())
		require.NoError(b.t, err)
		total.Found += report.Found
		total.Succeeded += report.Succeeded
		total.Failed += report.Failed
		return b.unfinished() == 0
	}, 20*time.Second, 10*time.Millisecond, "recovery leaves transfers unfinished")
	return total
}

func (b *bank) unfinished() int64 {
	b.t.Helper()
	filter := bson.D{{Key: "open", Value: true}, {Key: "state", Value: bson.D{{Key: "$ne", Value: "Initiated"}}}}
	n, err := b.db.Collection("transfers").CountDocuments(b.t.Context(), filter)
	require.NoError(b.t, err)
	return n
}

// cancelWaiting cancels what waits for a worker.
func (b *bank) cancelWaiting() {
	b.t.Helper()
	for rec, err := range b.List(b.t.Context(), transfer.Query{States: []transfer.State{transfer.StateInitiated}}) {
		require.NoError(b.t, err)
		_, err := b.Cancel(b.t.Context(), rec.ID, "nobody runs it")
		require.NoError(b.t, err)
	}
}

// audit requires that every transfer is final, that no marker is left, and that each balance is what the successful transfers make of the
// initial one, to the unit.
func (b *bank) audit(initial map[string]int64) {
	b.t.Helper()
	want := map[string]map[string]int64{"": maps.Clone(initial)}
	for rec, err := range b.List(b.t.Context(), transfer.Query{}) {
		require.NoError(b.t, err)
		require.Contains(b.t, []transfer.State{transfer.StateSuccess, transfer.StateFail}, rec.State, "transfer %s", rec.ID)
		if rec.State != transfer.StateSuccess {
			continue
		}
		for _, leg := range rec.Legs {
			if want[leg.Ledger] == nil { // its accounts begin with nothing
				want[leg.Ledger] = map[string]int64{}
			}
			want[leg.Ledger][leg.Account] += units(b.t, leg.Amount)
		}
	}
	for ledger, balances := range want {
		collection := cmp.Or(ledger, "accounts")
		require.Equal(b.t, balances, b.balancesIn(collection), "the balances in %s", collection)
	}
}

func units(t *testing.T, a transfer.Amount) int64 {
	t.Helper()
	kind, data, err := a.MarshalBSONValue()
	require.NoError(t, err)
	n, ok := bson.RawValue{Type: bson.Type(kind), Value: data}.AsInt64OK()
	require.True(t, ok)
	return n
}

// balances reads all accounts of the default ledger, and requires that no marker is left on any.
func (b *bank) balances() map[string]int64 {
	b.t.Helper()
	return b.balancesIn("accounts")
}

func (b *bank) balancesIn(collection string) map[string]int64 {
	b.t.Helper()
	cursor, err := b.db.Collection(collection).Find(b.t.Context(), bson.D{})
	require.NoError(b.t, err)
	var documents []struct {
		ID      string           `bson:"_id"`
		Balance int64            `bson:"balance"`
		Pending map[string]int64 `bson:"pending"`
	}
	require.NoError(b.t, cursor.All(b.t.Context(), &documents))
	found := map[string]int64{}
	for _, d := range documents {
		require.Empty(b.t, d.Pending, "markers left on account %s", d.ID)
		require.GreaterOrEqual(b.t, d.Balance, int64(0), "account %s is overdrawn", d.ID)
		found[d.ID] = d.Balance
	}
	return found
}

// insert stores documents behind the library's back.
func (b *bank) insert(collection string, documents ...any) {
	b.t.Helper()
	_, err := b.db.Collection(collection).InsertMany(b.t.Context(), documents)
	require.NoError(b.t, err)
}

// remove removes documents behind the library's back.
func (b *bank) remove(collection string, ids ...string) {
	b.t.Helper()
	_, err := b.db.Collection(collection).DeleteMany(b.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	require.NoError(b.t, err)
}

// initial names balances like newBank does.
func initial(balances ...int64) map[string]int64 {
	m := map[string]int64{}
	for i, balance := range balances {
		m[name(i)] = balance
	}
	return m
}

// seeded returns a source of randomness that a failing test prints.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
