package bank

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Branches is a bank with an account a here, and one in the ledger other, in a collection
// of the same name on another server.
type Branches struct {
	*Bank
	// Server is the other server.
	Server *mongotest.Server
	// Both is a coordinator that knows both ledgers.
	Both  *transfer.Coordinator
	start map[string]int64
}

// StartServer starts a server beside that of all tests, to which a test may do what it
// likes. It ends with the test.
func StartServer(t *testing.T) *mongotest.Server {
	t.Helper()
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// secondServer is started when it is first wanted, and ends with the process.
var secondServer = sync.OnceValues(func() (*mongotest.Server, error) { return mongotest.StartOwn(context.Background()) })

// SecondServer returns a server beside that of all tests, for those that do it no harm: a
// package has one.
func SecondServer(t *testing.T) *mongotest.Server {
	t.Helper()
	server, err := secondServer()
	require.NoError(t, err)
	return server
}

// NewBranches returns branches whose accounts have the given balances here and there.
func NewBranches(t *testing.T, server *mongotest.Server, here, there int64) *Branches {
	t.Helper()
	b := &Branches{Bank: New(t, here), Server: server, start: map[string]int64{"": here, "other": there}}
	b.Both = b.NewCoordinator(b.DB, b.Other())
	require.NoError(t, b.Both.Setup(t.Context()))
	other, err := b.Both.Ledger("other")
	require.NoError(t, err)
	_, err = other.Open(t.Context(), transfer.Account{ID: "a", Balance: transfer.Units(there)})
	require.NoError(t, err)
	return b
}

// Other registers the ledger on the other server, through a client of its own.
func (b *Branches) Other(opts ...*options.ClientOptions) transfer.Option {
	b.T.Helper()
	client := Client(b.T, b.Server.URI(), opts...)
	return transfer.WithLedger("other", client.Database(b.DB.Name()).Collection("accounts"))
}

// Across asks for a transfer from here to the other server, or back if units are
// negative.
func Across(id string, units int64) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-units)}, {Ledger: "other", Account: "a", Amount: transfer.Units(units)},
	}}
}

// CheckBooks requires that nothing is in flight on either server, and that each balance
// is what the successful transfers make of it.
func (b *Branches) CheckBooks() {
	b.T.Helper()
	require.Zero(b.T, b.Unfinished())
	want := map[string]int64{}
	for ledger, balance := range b.start {
		want[ledger] = balance
	}
	for rec, err := range b.Both.List(b.T.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}}) {
		require.NoError(b.T, err)
		for _, leg := range Moved(rec) {
			want[leg.Ledger] += Units(b.T, leg.Amount)
		}
	}
	RequireLedgers(b.T, b.Both, want)
}

// LeaveAcross leaves a transfer of 60 to the other server behind, with traces on both:
// see [Bank.LeaveTraces].
func (b *Branches) LeaveAcross(id, state string, payer, payee Trace) {
	b.T.Helper()
	b.finished(b.Both, Across(id, 60))
	b.SetBack(id, state)
	b.LeaveTrace(id, "a", -60, payer)
	if payee != Cleared {
		b.ChangeThere(traceUpdate(id, 60, payee))
	}
}

// There returns the accounts on the other server.
func (b *Branches) There() *mongo.Collection {
	b.T.Helper()
	return Client(b.T, b.Server.URI()).Database(b.DB.Name()).Collection("accounts")
}

// ChangeThere changes the account on the other server behind the library's back.
func (b *Branches) ChangeThere(update bson.M) {
	b.T.Helper()
	result, err := b.There().UpdateOne(b.T.Context(), bson.M{"_id": "a"}, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.MatchedCount)
}

// Mirror registers the ledger mirror in the same database. Each ledger takes a command of
// its own.
func Mirror(db *mongo.Database) []transfer.Option {
	return []transfer.Option{transfer.WithLedger("mirror", db.Collection("mirror"))}
}

// ThroughMirror moves 60 from a: 40 to b, and 20 to m in the ledger mirror, which it
// opens.
func ThroughMirror(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
	l, err := c.Ledger("mirror")
	if err != nil {
		return transfer.Record{}, err
	}
	opened := transfer.Account{ID: "m", NoFloor: true}
	if _, err := l.Open(ctx, opened); err != nil && !errors.Is(err, transfer.ErrAccountExists) {
		return transfer.Record{}, err
	}
	return c.Transfer(ctx, transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)},
		{Ledger: "mirror", Account: "m", Amount: transfer.Units(20)},
		{Account: "b", Amount: transfer.Units(40)},
	}})
}
