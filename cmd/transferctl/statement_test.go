package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A statement shows what was moved, newest first and page by page, and of a hold what was
// posted.
func TestStatement(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("paid", 30)
	b.MustHold("held", 20, time.Hour)
	_, err := b.Post(t.Context(), "held", transfer.PostAmount(transfer.Units(5)))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "paid", Amount: transfer.Units(10)})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	all := d.run("statement", "a").done().out
	require.Regexp(t, `^ID +COMMITTED +AMOUNT +BALANCE +MOVES +REMARK
back +20.* 10 +75 +a \+10, b -10 +reverses paid
held +20.* -5 +65 +a -5, b \+5
paid +20.* -30 +70 +a -30, b \+30
$`, all)
	require.Equal(t, []string{"back", "held", "paid"}, d.run("statement", "a", "--json").done().column("transferID"))
	first := d.run("statement", "a", "--limit", "2").requires(exitDone)
	require.Contains(t, first.err, `--beyond "held"`)
	require.Equal(t, []string{"paid"}, d.run("statement", "a", "--beyond", "held", "--json").done().column("transferID"))
	require.Equal(t, []string{}, d.run("statement", "a", "--before", "1h", "--json").done().column("transferID"))
	require.Equal(t, []string{"back", "held", "paid"}, d.run("statement", "a", "--after", "1h", "--json").done().column("transferID"))

	require.ErrorIs(t, bank.ErrorOf(b.Transfer(t.Context(), bank.Move("poor", "b", "a", 1000))), transfer.ErrInsufficientFunds)
	require.Contains(t, d.run("statement", "a", "--beyond", "poor").requires(exitUsage).err, `"poor" is not committed`)
	d.run("statement", "nobody").requires(exitNotFound)
	d.run("statement", "a", "--beyond", "nothing").requires(exitNotFound)
	d.run("statement", "a", "--before", "soon").requires(exitUsage)
	d.run("statement", "a", "--ledger", "none").requires(exitUsage)
	b.CheckBooks(bank.Balances(100, 0))
}

// A frozen account refuses what is new, until it is unfrozen.
func TestFreeze(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("freeze", "a").requires(exitUsage).err, `freeze the account "a", on which 100 are available: no new transfer`)
	require.Contains(t, d.run("freeze", "a", "--yes").done().out, "frozen")
	require.Equal(t, true, d.run("freeze", "a", "--json").done().document()["frozen"], "it is: nothing is asked")
	require.ErrorIs(t, bank.ErrorOf(b.Transfer(t.Context(), bank.Move("no", "a", "b", 1))), transfer.ErrAccountFrozen)
	require.Contains(t, d.run("list").done().out, "accountFrozen a\n")
	require.Contains(t, d.run("show", "no").done().out, "\nfailed:   accountFrozen: account \"a\": account is frozen\n")

	require.Contains(t, d.run("unfreeze", "a").requires(exitUsage).err, "transfers can touch it again")
	require.NotContains(t, d.run("unfreeze", "a", "--yes").done().out, "frozen")
	b.MustMove("yes", 1)
	d.run("freeze", "nobody", "--yes").requires(exitNotFound)
	d.run("freeze", "a", "--ledger", "none", "--yes").requires(exitUsage)
	b.CheckBooks(bank.Balances(100, 0))
}

// Where nothing is found, a value that was not taken as a text is named.
func TestMetadataIsNumberOrText(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	req := bank.Move("paid", "a", "b", 1)
	req.Metadata = map[string]any{"order": "17"}
	_, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	none := d.run("list", "--metadata", "order=17").requires(exitDone)
	require.NotContains(t, none.out, "paid")
	require.Contains(t, none.err, `--metadata order=… was not taken as a text, which would be order='"…"'`)
	found := d.run("list", "--metadata", `order="17"`).done()
	require.Contains(t, found.out, "paid")
	require.Empty(t, found.err)
	require.Empty(t, d.run("list", "--metadata", "order=none").done().err)
	b.CheckBooks(bank.Balances(100, 0))
}
