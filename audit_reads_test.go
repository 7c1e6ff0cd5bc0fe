package transfer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
)

// An audit only reads, in batches, and what one client reaches it reads as it was at one moment.
func TestAuditOnlyReads(t *testing.T) {
	t.Parallel()
	b := newBank(t, 1_000_000)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	var (
		mu       sync.Mutex
		commands = map[string]int{}
		moments  = map[string]bool{}
	)
	monitor := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		commands[e.CommandName]++
		if at := e.Command.Lookup("readConcern", "atClusterTime"); e.CommandName == "find" && at.Type != 0 {
			moments[at.String()] = true
		}
	}})
	c := b.coordinator(b.through(monitor), mirror(b.db)...) // through another client: a cluster of its own
	for n := range 3 {
		b.stallAt(fmt.Sprint("stalled", n), 3+n%2, lost, 1)
	}
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, moments, 1, "%v", commands)
	for name := range commands {
		require.Contains(t, []string{"hello", "find", "aggregate", "getMore", "killCursors", "endSessions", "listCollections", "create"}, name)
	}
	require.Zero(t, commands["create"]+commands["listCollections"])
	require.LessOrEqual(t, commands["find"], 6)
}

// What is too large for one snapshot is audited range by range: each document once, whatever lies elsewhere, and whatever its _id is.
func TestAuditByRanges(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0, 10, 20, 30)
	for n := range 10 {
		b.mustMove(fmt.Sprint("t", n), 1)
	}
	b.stallAt("u", 3, lost, 5)
	b.set("accounts", "b", "pending.ghost", int64(5))
	b.set("accounts", "d", "balance", int64(-5))
	b.set("transfers", "t3", "state", "Frozen")
	b.set("transfers", "t7", "open", true)
	b.remove("accounts", "e")
	b.insert("orders", bson.M{"_id": "o-1", "pending": bson.M{"ghost": int64(0)}})
	b.insert("accounts", bson.M{"_id": int64(5), "balance": int64(1)})
	b.insert("transfers", bson.M{"_id": bson.NewObjectID(), "state": 5})
	b.Coordinator = b.coordinator(b.db, orders(b.db)...)
	accounts := []transfer.IDRange{{To: "b"}, {From: "b", To: "c"}, {From: "c"}}
	transfers := []transfer.IDRange{{To: "t5"}, {From: "t5", To: "t9"}, {From: "t9"}}
	var found []audit.Code
	counts := [2]int{}
	transit := int64(0)
	for i := range accounts {
		report, err := b.AuditWith(t.Context(), transfer.AuditOptions{Accounts: accounts[i], Transfers: transfers[i]})
		require.NoError(t, err)
		found = append(found, codesOf(report)...)
		counts[0] += report.Accounts
		counts[1] += report.Transfers
		transit += units(t, report.InTransit)
	}
	require.ElementsMatch(t, []audit.Code{
		audit.OrphanMarker, audit.OrphanMarker, audit.BelowFloor, audit.WrongState, audit.WrongOpen, audit.WrongID,
		audit.Unreadable,
	}, found)
	require.Equal(t, [2]int{5, 12}, counts)
	require.EqualValues(t, 5, transit)
	require.ElementsMatch(t, found, codesOf(b.mustAudit()))
}

// The findings that are told are bounded, and the rest is counted.
func TestAuditOmits(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	documents := make([]any, 1500)
	for i := range documents {
		documents[i] = bson.M{"_id": fmt.Sprint(i), "balance": 1.5}
	}
	b.insert("accounts", documents...)
	report := b.mustAudit()
	require.Len(t, report.Findings, 1000)
	require.Equal(t, 500, report.Omitted)
	require.Equal(t, 1500, report.Accounts)
}

// An audit that can't look at everything says so. Its context ends it.
func TestAuditErrors(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Audit(ctx)
	require.ErrorIs(t, err, context.Canceled)
	c := b.coordinator(b.db)
	require.NoError(t, c.Close(t.Context()))
	_, err = c.Audit(t.Context())
	require.ErrorIs(t, err, transfer.ErrClosed)
	require.ErrorIs(t, c.RepairOpen(t.Context(), "t"), transfer.ErrClosed)
	require.ErrorIs(t, c.RepairPending(t.Context(), "", "a"), transfer.ErrClosed)
	require.ErrorIs(t, c.RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "t", Decision: transfer.KeepBalance,
	}), transfer.ErrClosed)
	b.audit(initial(100, 0))
}
