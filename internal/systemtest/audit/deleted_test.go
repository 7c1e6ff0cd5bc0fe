package audit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An account is deleted by hand while a transfer is in flight there of whose commit the
// caller was told. The audit finds that as soon as anything that is stored shows the
// commit. Before that the account looks as if it had never been there: nothing is found,
// and the transfer may fail.
// If the account comes back before recovery has stepped in, nothing is lost.
func TestAuditOfDeletedAccounts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		state        string
		payer, payee bank.Trace
		deleted      string
		want         []audit.Code
	}{
		{"Preparing", bank.Reserved, bank.Reserved, "a", []audit.Code{}},
		{"Preparing", bank.Reserved, bank.Reserved, "b", []audit.Code{}},
		{"Preparing", bank.Reserved, bank.Done, "a", []audit.Code{audit.MissingDocument}},
		{"Preparing", bank.Reserved, bank.Done, "b", []audit.Code{}},
		{"Committed", bank.Reserved, bank.Done, "a", []audit.Code{audit.MissingDocument}},
		{"Committed", bank.Reserved, bank.Reserved, "b", []audit.Code{audit.MissingDocument}},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 5)
			b.LeaveTraces("t", 60, row.state, row.payer, row.payee)
			restore := bank.Deleted(row.deleted)(b)
			require.Equal(t, row.want, bank.CodesOf(b.MustAudit()))
			restore()
			require.Empty(t, b.MustAudit().Findings)
			b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
			require.Equal(t, bank.Balances(40, 65), b.Balances())
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// What a deletion makes of a commit that was reported and not recorded shows nowhere but
// in the sum: the debit is given back, and a document that comes back later has the
// marker of a transfer that has failed.
func TestAuditOfALostCommit(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.LeavePrepared("t", 60)
	restore := bank.Deleted("b")(b)
	require.Equal(t, 1, b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack)).Failed)
	expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(105)}}}
	report, err := b.AuditWith(t.Context(), expected)
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal}, bank.CodesOf(report))
	restore()
	report, err = b.AuditWith(t.Context(), expected)
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.FinalMarker}, bank.CodesOf(report))
	require.NoError(t, b.RepairMarker(t.Context(), repairOf(report.Findings[0], transfer.KeepBalance)))
	require.Equal(t, bank.Balances(100, 5), b.Balances())
	require.Empty(t, b.MustAudit().Findings)
}
