package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// requireStatement requires the entries of an account's statement, with the balance after
// each, and what was posted after the last one.
func requireStatement(b *bank.Bank, id string, opening int64, ids []string, amounts ...int64) {
	b.T.Helper()
	var listed []string
	balance := opening
	for e, err := range b.Statement(b.T.Context(), id, transfer.StatementQuery{}) {
		require.NoError(b.T, err)
		require.Less(b.T, len(listed), len(amounts), "%v", e)
		balance += amounts[len(listed)]
		require.Equal(b.T, transfer.Units(balance), e.Balance, "account %s", id)
		listed = append(listed, e.TransferID)
	}
	require.Equal(b.T, ids, listed, "account %s", id)
	at, err := b.BalanceAt(b.T.Context(), id, time.Now().Add(time.Hour))
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.Units(balance), at, "account %s", id)
}

// A transfer is in the statements of all its accounts from its record on, whatever is
// left of it on them. Before that, what it has paid in is in none.
func TestStatementBesideTraces(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, row := range []struct {
		state        string
		payer, payee bank.Trace
	}{
		{"Preparing", bank.Reserved, bank.Unprepared}, {"Preparing", bank.Reserved, bank.Reserved}, {"Preparing", bank.Reserved, bank.Done},
		{"Committed", bank.Reserved, bank.Reserved}, {"Committed", bank.Reserved, bank.Done}, {"Committed", bank.Reserved, bank.Cleared},
		{"Committed", bank.Cleared, bank.Reserved}, {"Committed", bank.Cleared, bank.Done}, {"Committed", bank.Cleared, bank.Cleared},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.MustMove("first", 10)
			b.LeaveTraces("t", 60, row.state, row.payer, row.payee)
			if row.state == "Preparing" {
				requireStatement(b, "a", 100, []string{"first"}, -10)
				requireStatement(b, "b", 5, []string{"first"}, 10)
			} else {
				requireStatement(b, "a", 100, []string{"first", "t"}, -10, -60)
				requireStatement(b, "b", 5, []string{"first", "t"}, 10, 60)
			}
			b.RecoverAll()
			requireStatement(b, "a", 100, []string{"first", "t"}, -10, -60)
			requireStatement(b, "b", 5, []string{"first", "t"}, 10, 60)
			require.Empty(t, b.MustAudit().Findings)
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// What was answered is shown: by accounts, statements and closing, while the clears are
// deferred.
func TestReadersAfterTheAnswer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	opening, amounts, ids := int64(1000), []int64(nil), []string(nil)
	for n := range 20 {
		id := fmt.Sprint("t", n)
		_, err := b.Transfer(t.Context(), bank.Move(id, "a", "b", 50))
		require.NoError(t, err)
		ids, amounts = append(ids, id), append(amounts, -50)
		opening -= 50
		requireAccount(b, "a", opening, opening, 0)
		requireAccount(b, "b", 1000-opening, 1000-opening, 0)
		require.Empty(t, b.MustAudit().Findings)
	}
	requireStatement(b, "a", 1000, ids, amounts...)
	require.NoError(t, b.CloseAccount(t.Context(), "a"))
	for _, id := range ids {
		b.UntilSuccess(b.Coordinator, id)
	}
	require.Empty(t, b.MustAudit().Findings)
	b.CheckBooks(bank.Balances(1000, 0))
}
