package statements

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A statement succeeds although a message is lost together with the driver's repeat,
// whichever command it carries.
func TestStatementOutlivesLostMessages(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(24 * time.Hour)}, 100, 0).WithIndexes()
	b.MustMove("t", 60)
	for n := 0; ; n++ {
		w := &bank.Wire{At: n, What: bank.Lost, Also: map[int]bank.Fault{n + 1: bank.Lost}}
		c := b.NewCoordinator(b.Through(w.Client()))
		var told []string
		for e, err := range c.Statement(t.Context(), "a", transfer.StatementQuery{}) {
			require.NoError(t, err, "command %d of %v", n, w.Commands)
			told = append(told, fmt.Sprint(e.TransferID, " ", e.Amount, " ", e.Balance))
		}
		require.Equal(t, []string{"t -60 40"}, told)
		if !w.HasStruck() {
			require.Greater(t, n, 3, "it reads the account, the retentions and the entries")
			break
		}
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A command that is never answered delays a statement only for the time limit of a
// command.
// The same holds for an audit's read of what may have been purged.
func TestStatementOutlivesSilence(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(24 * time.Hour)}, 100, 0).WithIndexes()
	b.MustMove("t", 60)
	read := func(w *bank.Wire) (commands int) {
		for e, err := range b.NewCoordinator(b.Through(w.Client())).Statement(t.Context(), "a", transfer.StatementQuery{NewestFirst: true}) {
			require.NoError(t, err)
			require.Equal(t, "t", e.TransferID)
		}
		return len(w.Commands)
	}
	w := &bank.Wire{At: read(&bank.Wire{At: -1}) - 1, What: bank.Swallowed} // the last command reads which retentions were used
	read(w)
	require.True(t, w.HasStruck())
	w = &bank.Wire{What: bank.Swallowed}
	_, err := b.NewCoordinator(b.Through(w.Client())).Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"find", "find"}, w.Commands[:2])
	b.CheckBooks(bank.Balances(100, 0))
}

// A server that was told to scan no collection refuses each try of a statement: one is
// enough.
func TestNoTableScan(t *testing.T) {
	t.Setenv("MONGODB_URI", "") // a server of its own, because all of it is told so
	b := bank.Over(t, bank.Client(t, bank.StartServer(t).URI()).Database("bank"))
	b.OpenAccounts([]int64{100, 0})
	b.MustMove("t", 60)
	scans := func(refused bool) {
		command := bson.D{{Key: "setParameter", Value: 1}, {Key: "notablescan", Value: refused}}
		require.NoError(t, b.DB.Client().Database("admin").RunCommand(t.Context(), command).Err())
	}
	scans(true)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	err := bank.LastError(b.NewCoordinator(b.DB).Statement(ctx, "a", transfer.StatementQuery{}))
	require.ErrorContains(t, err, "server error 291 NoQueryExecutionPlans")
	require.NoError(t, ctx.Err(), "it is not tried again")
	scans(false)
	b.CheckBooks(bank.Balances(100, 0))
}
