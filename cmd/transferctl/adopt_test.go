package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Adopt asks, changes what the flags say and nothing else, and says what it has replaced.
// While a hold is under way it changes nothing.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("held", 20, time.Hour)
	d := atDesk(t, b.DB)
	rename := []string{"adopt", "--field", "pending=reserved", "--events", "failed"}
	require.Contains(t, d.run(append(rename, "--yes")...).requires(exitFailed).err, "is unfinished")
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))

	d.seated = true
	a := d.run(rename...).requires(exitFailed)
	require.Contains(t, a.err, b.DB.Name()+".accounts")
	require.Contains(t, a.err, "reserved")
	require.Contains(t, a.err, ErrDeclined.Error())
	d.run("check").done()

	d.answer = "yes\n"
	a = d.run(rename...).requires(exitDone)
	require.Contains(t, a.out, "replaced: "+b.DB.Name()+".accounts fields: ")
	require.Contains(t, a.out, "pending=reserved")
	require.Contains(t, a.out, `replaced: events: "" by "failed"`)
	require.NotContains(t, a.out, "ids")
	require.Equal(t, "nothing was to be replaced\n", d.run("adopt", "--yes").done().out)
	d.run("audit").done()
	fields := transfer.WithFields(transfer.Fields{Pending: "reserved"})
	kinds := transfer.WithEvents(transfer.EventHandler{Kinds: []transfer.EventKind{transfer.EventFailed}})
	require.NoError(t, b.NewCoordinator(b.DB, fields, kinds).Setup(t.Context()))
	require.ErrorIs(t, b.Check(t.Context()), transfer.ErrUnsupportedDeployment, "the old configuration")
}

// A ledger that was dropped with what lay beside it, and made anew, is refused until it
// is adopted, and the message names the command.
func TestAdoptALedger(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	eu := b.DB.Collection("eu")
	require.NoError(t, b.NewCoordinator(b.DB, transfer.WithLedger("eu", eu)).Setup(t.Context()))
	require.NoError(t, eu.Drop(t.Context()))
	require.NoError(t, b.DB.Collection("eu.transfer").Drop(t.Context()))
	b.Insert("eu", bson.D{{Key: "_id", Value: "x"}, {Key: "balance", Value: int64(0)}})
	d := atDesk(t, b.DB)
	named := []string{"--with-ledger", "eu=eu"}
	problem := d.run(append(named, "check", "--json")...).requires(exitFindings).document()["problem"]
	require.Contains(t, problem, "see transferctl adopt")
	require.Contains(t, d.run(append(named, "setup")...).requires(exitFailed).err, "see transferctl adopt")
	replaced := d.run(append(named, "adopt", "--yes", "--json")...).done().document()["replaced"].([]any)
	require.Contains(t, replaced, map[string]any{
		"what": `ledger "eu" (` + b.DB.Name() + `.eu)`, "from": "a collection that is not there", "to": "the collection that is there",
	})
	d.run("setup").done()
	require.Equal(t, []string{"x"}, d.run("accounts", "--ledger", "eu", "--json").done().column("id"))
	require.Empty(t, b.MustAudit().Findings)
}

// A name that was mistyped is not adopted.
func TestAdoptNothing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("adopt", "--yes", "--transfers", "tranfers").requires(exitNotFound).err, ErrNoDeployment.Error())
	d.run("adopt", "--yes", "--retention", "24h").requires(exitUsage)
	require.NoError(t, b.DB.Collection("accounts.transfer").Drop(t.Context()))
	require.Contains(t, d.run("adopt", "--yes").requires(exitUsage).err, "Say --accounts")
	d.run("adopt", "--yes", "--accounts", "accounts").requires(exitDone)
	b.CheckBooks(bank.Balances(100))
}
