package patterns

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// bank is a database with a coordinator over it, set up as a deployment is.
type bank struct {
	*transfer.Coordinator
	t    *testing.T
	db   *mongo.Database
	opts []transfer.Option
	sums map[string]int64 // by currency: what all accounts began with
}

func newBank(t *testing.T, accounts []transfer.Account, opts ...transfer.Option) *bank {
	t.Helper()
	return openBank(t, mongotest.Database(t), accounts, opts...)
}

// openBank returns a bank over a database, and opens accounts in it.
func openBank(t *testing.T, db *mongo.Database, accounts []transfer.Account, opts ...transfer.Option) *bank {
	t.Helper()
	b := &bank{t: t, db: db, opts: opts, sums: map[string]int64{}}
	coord, err := transfer.NewCoordinator(db, opts...)
	require.NoError(t, err)
	b.Coordinator = coord
	t.Cleanup(func() { _ = coord.Close(t.Context()) })
	require.NoError(t, coord.Setup(t.Context()))
	for _, account := range accounts {
		_, err := coord.OpenAccount(t.Context(), account)
		require.NoError(t, err)
		units, _ := account.Balance.Int64()
		b.sums[account.Currency] += units
	}
	return b
}

// account returns an account in euros.
func account(id string, cents int64) transfer.Account {
	return transfer.Account{ID: id, Balance: transfer.Units(cents), Currency: "EUR"}
}

// outside returns an account without a floor.
func outside(id, currency string) transfer.Account {
	return transfer.Account{ID: id, Currency: currency, NoFloor: true}
}

// checkBooks stops the coordinator. Then these are all accounts, each with exactly this
// balance and nothing in flight, and the audit finds nothing.
func (b *bank) checkBooks(want map[string]int64) {
	b.t.Helper()
	require.NoError(b.t, b.Close(b.t.Context()))
	auditor, err := transfer.NewCoordinator(b.db, b.opts...)
	require.NoError(b.t, err)
	defer func() { _ = auditor.Close(b.t.Context()) }()

	got := map[string]int64{}
	for account, err := range auditor.Accounts(b.t.Context(), transfer.AccountQuery{}) {
		require.NoError(b.t, err)
		units, whole := account.Balance.Int64()
		require.True(b.t, whole, account.ID)
		got[account.ID] = units
		assert.Zero(b.t, account.Posted.Cmp(account.Balance), account.ID)
		assert.True(b.t, account.Incoming.IsZero(), account.ID)
	}
	assert.Equal(b.t, want, got)
	marked := bson.D{{Key: "pending", Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
	left, err := b.db.Collection("accounts").CountDocuments(b.t.Context(), marked)
	require.NoError(b.t, err)
	assert.Zero(b.t, left, "accounts with marks")

	var expected []transfer.ExpectedTotal
	for currency, sum := range b.sums {
		expected = append(expected, transfer.ExpectedTotal{Currency: currency, Sum: transfer.Units(sum)})
	}
	report, err := auditor.AuditWith(b.t.Context(), transfer.AuditOptions{Expected: expected})
	require.NoError(b.t, err)
	assert.Empty(b.t, report.Findings)
	assert.Zero(b.t, report.Unfinished)
	assert.True(b.t, report.InTransit.IsZero())
}
