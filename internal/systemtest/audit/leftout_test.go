package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An audit by a process that knows only a part of the deployment names what it has not
// read, and finds nothing wrong with that.
func TestAuditNamesWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	usd, orders := b.DB.Collection("usd"), b.DB.Collection("orders")
	all := b.NewCoordinator(b.DB, transfer.WithLedger("usd", usd), transfer.WithDocuments("orders", orders))
	require.NoError(t, all.Setup(t.Context()))
	ledger, err := all.Ledger("usd")
	require.NoError(t, err)
	_, err = ledger.Open(t.Context(), transfer.Account{ID: "u"})
	require.NoError(t, err)
	_, err = all.Transfer(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)}, {Ledger: "usd", Account: "u", Amount: transfer.Units(60)},
	}})
	require.NoError(t, err)
	b.Insert("usd", bson.M{"_id": "damaged", "balance": 1.5})

	report, err := all.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongBalance}, bank.CodesOf(report))
	require.Empty(t, report.LeftOut)

	report, err = b.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings, "it reads nothing of usd")
	require.ElementsMatch(t, []transfer.LeftOut{
		{Name: "usd", Namespace: b.DB.Name() + ".usd"}, {Documents: true, Name: "orders", Namespace: b.DB.Name() + ".orders"},
	}, report.LeftOut)

	// Another collection under the same name is not the recorded one.
	elsewhere := b.NewCoordinator(b.DB, transfer.WithLedger("usd", b.DB.Collection("usd2")), transfer.WithDocuments("orders", orders))
	report, err = elsewhere.Audit(t.Context())
	require.NoError(t, err)
	require.Len(t, report.LeftOut, 1)
	require.Equal(t, `ledger "usd" in `+b.DB.Name()+".usd", report.LeftOut[0].String())

	b.Remove("usd", "damaged")
	b.CheckBooks(bank.Balances(100))
	require.Empty(t, bank.CodesOf(b.MustAudit()))
}

// What is read under another name is not left out, and a collection of the same name on
// another server is.
func TestAuditKnowsWhatItReadsByItsIdentity(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 6)
	report, err := b.Both.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.LeftOut)

	renamed := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("own")), transfer.WithLedger("here", b.DB.Collection("accounts")))
	report, err = renamed.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []transfer.LeftOut{{Name: "other", Namespace: b.DB.Name() + ".accounts"}}, report.LeftOut)
	b.CheckBooks()
}
