package bank

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Bank is a database of a test's own with a coordinator over it. A test that moves money
// ends with [Bank.CheckBooks] or an audit.
type Bank struct {
	*transfer.Coordinator
	// T is the test.
	T *testing.T
	// DB is the database, through a client of the test's own.
	DB *mongo.Database
	// Wires are those of the processes that have died: see [Bank.Dying].
	Wires []*Wire

	mu           sync.Mutex
	begun        time.Time               // the first of its coordinators
	coordinators []*transfer.Coordinator // that Wipe stops
}

// New returns a bank with accounts a, b, c … of the given balances. It has no
// indexes: making them takes longer than most tests, and the first use of a collection
// writes the notes, which is all that correctness needs.
func New(t *testing.T, balances ...int64) *Bank {
	t.Helper()
	return NewWith(t, nil, balances...)
}

// NewWith is [New] with options of the coordinator.
func NewWith(t *testing.T, opts []transfer.Option, balances ...int64) *Bank {
	t.Helper()
	b := NewBare(t, opts...)
	b.OpenAccounts(balances)
	return b
}

// WithIndexes sets the bank up as a deployment is: with all collections and indexes.
func (b *Bank) WithIndexes() *Bank {
	b.T.Helper()
	require.NoError(b.T, b.Setup(b.T.Context()))
	return b
}

// NewBare returns a bank that nobody has used yet: without accounts, notes and indexes.
func NewBare(t *testing.T, opts ...transfer.Option) *Bank {
	t.Helper()
	return Over(t, mongotest.Database(t), opts...)
}

// Over returns a bank over a database that the test has from elsewhere.
func Over(t *testing.T, db *mongo.Database, opts ...transfer.Option) *Bank {
	t.Helper()
	b := &Bank{T: t, DB: db}
	b.Coordinator = b.NewCoordinator(db, opts...)
	return b
}

// Wipe makes the bank one that nobody has used yet, as [NewBare] does: it stops all of
// its coordinators and removes all documents, the notes too. That takes a fraction of the
// time that the server needs to make collections and to drop them. The bank has a new
// coordinator with the given options.
func (b *Bank) Wipe(opts ...transfer.Option) {
	b.T.Helper()
	b.remove(func(string) bool { return true })
	b.Coordinator = b.NewCoordinator(b.DB, opts...)
}

// Clear removes all documents but the notes, and stops all coordinators but the bank's
// and the given ones, which need not look at the deployment again.
func (b *Bank) Clear(keep ...*transfer.Coordinator) {
	b.T.Helper()
	b.remove(func(collection string) bool { return !strings.HasSuffix(collection, ".transfer") }, append(keep, b.Coordinator)...)
}

// remove stops all coordinators but some, and removes the documents of some collections.
func (b *Bank) remove(from func(collection string) bool, keep ...*transfer.Coordinator) {
	b.T.Helper()
	b.mu.Lock()
	used := b.coordinators
	b.coordinators, b.Wires = keep, nil
	b.mu.Unlock()
	for _, c := range used {
		if !slices.Contains(keep, c) {
			Kill(c)
		}
	}
	names, err := b.DB.ListCollectionNames(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	names = slices.DeleteFunc(names, func(name string) bool { return !from(name) })
	hasty := b.DB.Client().Database(b.DB.Name(), options.Database().SetWriteConcern(writeconcern.W1()))
	for i, name := range names {
		db := hasty
		if i == len(names)-1 {
			db = b.DB // a majority has the last removal, and so all others
		}
		_, err := db.Collection(name).DeleteMany(b.T.Context(), bson.D{})
		require.NoError(b.T, err)
	}
}

// Renew wipes the bank for a test, or a subtest of its test, and opens accounts a, b, c …
// with the given balances.
func (b *Bank) Renew(t *testing.T, balances ...int64) {
	t.Helper()
	b.T = t
	b.Wipe()
	b.OpenAccounts(balances)
}

// OpenAccounts opens accounts a, b, c … with the given balances.
func (b *Bank) OpenAccounts(balances []int64) {
	b.T.Helper()
	for i, balance := range balances {
		_, err := b.OpenAccount(b.T.Context(), transfer.Account{ID: AccountName(i), Balance: transfer.Units(balance)})
		require.NoError(b.T, err)
	}
}

// AccountName returns the ID of the i-th account: a, b, c.
func AccountName(i int) string { return string(rune('a' + i)) }

// NewCoordinator returns another coordinator, over the given handle of the bank's
// database. Its calls answer once nothing is left to be done, so that a test finds what
// is stored in the end; [transfer.WithReturnAt] among the options says otherwise.
func (b *Bank) NewCoordinator(db *mongo.Database, opts ...transfer.Option) *transfer.Coordinator {
	b.T.Helper()
	c, err := transfer.NewCoordinator(db, append([]transfer.Option{transfer.WithReturnAt(transfer.AtSuccess)}, opts...)...)
	require.NoError(b.T, err)
	b.T.Cleanup(func() { Kill(c) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coordinators = append(b.coordinators, c)
	if b.begun.IsZero() {
		b.begun = time.Now()
	}
	return c
}

// Kill stops a coordinator where it is, as far as that is possible from inside its
// process.
func Kill(c *transfer.Coordinator) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(now)
}

// Through returns the bank's database through a client with other options.
func (b *Bank) Through(opts *options.ClientOptions) *mongo.Database {
	b.T.Helper()
	client := Client(b.T, mongotest.URI(), opts)
	return client.Database(b.DB.Name())
}

// eventually is how long something may take that must happen. It only keeps a test from
// hanging for ever, also on a machine that others keep busy.
const eventually = 5 * time.Minute

// RecoverAll takes over what is unfinished, at once, and requires that nothing is left
// but what waits for a worker.
func (b *Bank) RecoverAll(opts ...transfer.Option) transfer.RecoveryReport {
	b.T.Helper()
	return b.RecoverBy(b.NewRecoverer(opts...))
}

// NewRecoverer returns a coordinator that takes over, at once, whatever is unfinished.
func (b *Bank) NewRecoverer(opts ...transfer.Option) *transfer.Coordinator {
	b.T.Helper()
	return b.NewCoordinator(b.DB, append([]transfer.Option{transfer.WithStallThreshold(0)}, opts...)...)
}

// RecoverBy is [Bank.RecoverAll] by a coordinator of [Bank.NewRecoverer].
func (b *Bank) RecoverBy(c *transfer.Coordinator) transfer.RecoveryReport {
	b.T.Helper()
	var total transfer.RecoveryReport
	over := func() bool {
		report, err := c.Recover(b.T.Context())
		require.NoError(b.T, err)
		total.Found += report.Found
		total.Succeeded += report.Succeeded
		total.Failed += report.Failed
		return b.Unfinished() == 0
	}
	if !over() { // as a rule once is enough, and needs no timer
		require.Eventually(b.T, over, eventually, 10*time.Millisecond, "recovery leaves transfers unfinished")
	}
	return total
}

// Unfinished counts the transfers that are under way, but for those that wait for a
// worker.
func (b *Bank) Unfinished() int64 {
	b.T.Helper()
	filter := bson.D{{Key: "open", Value: true}, {Key: "state", Value: bson.D{{Key: "$ne", Value: "Initiated"}}}}
	n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), filter)
	require.NoError(b.T, err)
	return n
}

// CancelWaiting cancels what waits for a worker.
func (b *Bank) CancelWaiting() {
	b.T.Helper()
	for rec, err := range b.List(b.T.Context(), transfer.Query{States: []transfer.State{transfer.StateInitiated}}) {
		require.NoError(b.T, err)
		_, err := b.Cancel(b.T.Context(), rec.ID, "nobody runs it")
		require.NoError(b.T, err)
	}
}

// CheckBooks requires that every transfer is final, that no marker is left, and that each
// balance is what the successful transfers make of the initial one, to the unit.
func (b *Bank) CheckBooks(initial map[string]int64) {
	b.T.Helper()
	want := map[string]map[string]int64{"": maps.Clone(initial)}
	for rec, err := range b.List(b.T.Context(), transfer.Query{}) {
		require.NoError(b.T, err)
		require.Contains(b.T, []transfer.State{transfer.StateSuccess, transfer.StateFail}, rec.State, "transfer %s", rec.ID)
		if rec.State != transfer.StateSuccess {
			continue
		}
		for _, leg := range Moved(rec) {
			if want[leg.Ledger] == nil { // its accounts begin with nothing
				want[leg.Ledger] = map[string]int64{}
			}
			want[leg.Ledger][leg.Account] += Units(b.T, leg.Amount)
		}
	}
	for ledger, balances := range want {
		collection := cmp.Or(ledger, "accounts")
		require.Equal(b.T, balances, b.balancesIn(collection), "the balances in %s", collection)
	}
}

// Moved returns what a transfer has moved: its legs, or the posted part of a hold.
func Moved(rec transfer.Record) []transfer.Leg {
	if rec.Posted == nil {
		return rec.Legs
	}
	moved := slices.Clone(rec.Legs)
	for i := range moved {
		moved[i].Amount = *rec.Posted
		if rec.Legs[i].Amount.Sign() < 0 {
			moved[i].Amount = rec.Posted.Neg()
		}
	}
	return moved
}

// Units returns an amount as a number.
func Units(t *testing.T, a transfer.Amount) int64 {
	t.Helper()
	kind, data, err := a.MarshalBSONValue()
	require.NoError(t, err)
	n, ok := bson.RawValue{Type: bson.Type(kind), Value: data}.AsInt64OK()
	require.True(t, ok)
	return n
}

// Balances reads all accounts of the default ledger, and requires that none has a marker.
func (b *Bank) Balances() map[string]int64 {
	b.T.Helper()
	return b.balancesIn("accounts")
}

func (b *Bank) balancesIn(collection string) map[string]int64 {
	b.T.Helper()
	cursor, err := b.DB.Collection(collection).Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	var documents []struct {
		ID      string           `bson:"_id"`
		Balance int64            `bson:"balance"`
		Pending map[string]int64 `bson:"pending"`
	}
	require.NoError(b.T, cursor.All(b.T.Context(), &documents))
	found := map[string]int64{}
	for _, d := range documents {
		require.Empty(b.T, d.Pending, "markers left on account %s", d.ID)
		require.GreaterOrEqual(b.T, d.Balance, int64(0), "account %s is overdrawn", d.ID)
		found[d.ID] = d.Balance
	}
	return found
}

// Balances gives balances the names a, b, c … as [New] does.
func Balances(balances ...int64) map[string]int64 {
	m := map[string]int64{}
	for i, balance := range balances {
		m[AccountName(i)] = balance
	}
	return m
}

// Seeded returns a source of randomness whose seed a failing test prints.
func Seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// Processes returns coordinators that stand for as many processes of the same service.
func (b *Bank) Processes(n int, opts ...transfer.Option) []*transfer.Coordinator {
	b.T.Helper()
	all := make([]*transfer.Coordinator, n)
	for i := range all {
		all[i] = b.NewCoordinator(b.DB, opts...)
	}
	return all
}

// RequireSame requires that a later answer shows the record that the first one has shown.
// The commit's time, as the first one has it, is an estimate.
func RequireSame(t *testing.T, first, later transfer.Record) {
	t.Helper()
	require.WithinDuration(t, later.CommittedAt, first.CommittedAt, time.Minute)
	first.CommittedAt = later.CommittedAt
	require.Equal(t, first, later)
}
