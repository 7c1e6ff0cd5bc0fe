package statements

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// ledger returns a coordinator that knows a collection by a name, beside a default ledger
// of its own, and the ledger.
func ledger(b *bank.Bank, name, collection string) (*transfer.Coordinator, *transfer.Ledger) {
	b.T.Helper()
	c := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("others")), transfer.WithLedger(name, b.DB.Collection(collection)))
	require.NoError(b.T, c.Setup(b.T.Context()))
	l, err := c.Ledger(name)
	require.NoError(b.T, err)
	return c, l
}

// requireLegible requires what the statement of an account says, and the balance before
// all of it.
func requireLegible(b *bank.Bank, of *transfer.Ledger, id string, opening int64, lines ...string) {
	b.T.Helper()
	entries := b.MustStatement(of, id, transfer.StatementQuery{})
	require.Equal(b.T, lines, b.Lines(entries))
	balance, err := of.BalanceAt(b.T.Context(), id, time.Now().Add(-time.Hour))
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.Units(opening), balance)
	for _, e := range entries {
		balance, err := of.BalanceAt(b.T.Context(), id, e.At)
		require.NoError(b.T, err)
		require.Equal(b.T, e.Balance, balance)
	}
}

// requireNoFindings requires that an audit finds nothing.
func requireNoFindings(b *bank.Bank, by *transfer.Coordinator) {
	b.T.Helper()
	report, err := by.Audit(b.T.Context())
	require.NoError(b.T, err)
	require.Empty(b.T, report.Findings)
}

// All processes read the same past of an account, by whatever names they know its
// collection, and also when a name is a new one.
func TestStatementOfACollectionWithSeveralNames(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("t1", 10)
	_, europe := ledger(b, "europe", "accounts")
	requireLegible(b, europe, "a", 100, "t1 -10 90")
	other, eu := ledger(b, "eu", "accounts")
	b.MustMove("t2", 30)
	_, err := other.Transfer(t.Context(), transfer.Request{ID: "t3", Legs: []transfer.Leg{
		{Ledger: "eu", Account: "a", Amount: transfer.Units(-7)}, {Ledger: "eu", Account: "b", Amount: transfer.Units(7)},
	}})
	require.NoError(t, err)
	for _, l := range []*transfer.Ledger{b.MustLedger(""), eu, europe} {
		requireLegible(b, l, "a", 100, "t1 -10 90", "t2 -30 60", "t3 -7 53")
		requireLegible(b, l, "b", 0, "t1 10 10", "t2 30 40", "t3 7 47")
	}
	reading := b.NewCoordinator(b.DB, transfer.WithLedger("read", b.DB.Collection("accounts")), transfer.WithAccounts(b.DB.Collection("more")))
	read, err := reading.Ledger("read") // a name for which nobody has written a record
	require.NoError(t, err)
	requireLegible(b, read, "a", 100, "t1 -10 90", "t2 -30 60", "t3 -7 53")
	requireNoFindings(b, other)
	requireNoFindings(b, b.Coordinator)
}

// A statement has nothing of another collection, although another process knows that one
// by the same name.
func TestStatementOfOneOfSeveralCollectionsOfAName(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	var coordinators []*transfer.Coordinator
	var ledgers []*transfer.Ledger
	for i, collection := range []string{"eu1", "eu2"} {
		c, l := ledger(b, "eu", collection)
		for _, id := range []string{"x", "y"} {
			_, err := l.Open(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(int64(1000 * (i + 1)))})
			require.NoError(t, err)
		}
		coordinators, ledgers = append(coordinators, c), append(ledgers, l)
	}
	for i, id := range []string{"t1", "t2"} {
		_, err := coordinators[i].Transfer(t.Context(), transfer.Request{ID: id, Legs: []transfer.Leg{
			{Ledger: "eu", Account: "x", Amount: transfer.Units(-7)}, {Ledger: "eu", Account: "y", Amount: transfer.Units(7)},
		}})
		require.NoError(t, err)
	}
	requireLegible(b, ledgers[0], "x", 1000, "t1 -7 993")
	requireLegible(b, ledgers[1], "x", 2000, "t2 -7 1993")
	for _, c := range coordinators {
		requireNoFindings(b, c)
	}
}
