package history_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// closeAndRead closes alice's past and reads a page of it. The log then has the commands.
func (b *bank) closeAndRead() {
	b.T.Helper()
	h := b.history("alice")
	b.Log.Take()
	_, _, err := h.BalanceAsOf(b.T.Context(), time.Time{})
	require.NoError(b.T, err)
	_, _, err = h.Page(b.T.Context(), history.NewestFirst, time.Time{}, moment(0), 10)
	require.NoError(b.T, err)
}

// On one cluster, the account and the transfers are read as of one time, which the
// primary has reached after it has shown its clock. Pages are read from a server that has
// reached it.
func TestClosingReadsASnapshot(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"t": int64(1)}}))
	b.closeAndRead()
	commands := b.Log.Take()
	require.Equal(t, []string{"hello", "hello", "find", "find", "find", "find", "find", "find"}, storetest.Names(commands))
	commands = commands[1:]
	require.Equal(t, "local", commands[1].Text("readConcern", "level"), "its time is not that of the majority")
	reached := operationTime(commands[1].Reply.Lookup("operationTime"))
	require.NotZero(t, reached)
	for _, c := range commands[2:6] {
		require.Equal(t, "snapshot", c.Text("readConcern", "level"))
		require.Equal(t, reached, operationTime(c.Body.Lookup("readConcern", "atClusterTime")))
	}
	require.Equal(t, "transfers.transfer", commands[3].Text("find"), "the names, after the account")
	require.Equal(t, "majority", commands[6].Text("readConcern", "level"))
	require.Equal(t, reached, operationTime(commands[6].Body.Lookup("readConcern", "afterClusterTime")))
}

// On two clusters, the account is read by a linearizable read. Then the transfers are
// read from a server that a linearizable read has shown to be the primary. Pages are read
// from a server that has stored no less.
func TestClosingApartReadsFromPrimaries(t *testing.T) {
	t.Parallel()
	accounts := storetest.NewCommandLog()
	b := newBank(t, func(c *storetest.Config) {
		other := mongotest.Client(t, accounts.Options()).Database(c.Transfers.Database().Name())
		c.Ledgers[""] = other.Collection("accounts")
	})
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"t": int64(1)}}))
	b.closeAndRead()
	read := accounts.Take()
	require.Equal(t, []string{"find"}, storetest.Names(read))
	require.Equal(t, "linearizable", read[0].Text("readConcern", "level"))
	commands := b.Log.Take()
	require.Equal(t, []string{"hello", "hello", "hello", "find", "find", "find", "find"}, storetest.Names(commands))
	commands = commands[1:]
	require.Equal(t, "transfers.transfer", commands[2].Text("find"), "the names, after the account")
	require.Equal(t, "linearizable", commands[2].Text("readConcern", "level"))
	shown := operationTime(commands[2].Reply.Lookup("operationTime"))
	require.NotZero(t, shown)
	for _, c := range commands[3:] {
		require.Equal(t, "majority", c.Text("readConcern", "level"))
		require.GreaterOrEqual(t, operationTime(c.Body.Lookup("readConcern", "afterClusterTime")), shown)
	}
}

// Where transfers are ordered by changes, the account is read as of two times of its
// cluster: one that an earlier linearizable read has reached, and one that another such
// read has reached after the clock.
func TestClosingByChangesReadsAsOfTwoTimes(t *testing.T) {
	t.Parallel()
	accounts := storetest.NewCommandLog()
	b := newBank(t, func(c *storetest.Config) {
		other := mongotest.Client(t, accounts.Options()).Database(c.Transfers.Database().Name())
		c.Ledgers[""] = other.Collection("accounts")
	})
	b.Put(storetest.Account("alice", nil))
	h := b.history("alice")
	accounts.Take()
	require.NoError(t, h.Reach(t.Context()))
	_, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	read := accounts.Take()
	require.Equal(t, []string{"find", "find", "find", "find"}, storetest.Names(read))
	for _, reached := range read[:2] {
		require.Equal(t, "linearizable", reached.Text("readConcern", "level"))
	}
	for i, past := range read[2:] {
		require.Equal(t, "snapshot", past.Text("readConcern", "level"))
		want := operationTime(read[i].Reply.Lookup("operationTime"))
		require.Equal(t, want, operationTime(past.Body.Lookup("readConcern", "atClusterTime")))
	}
}

// The past is closed at a time that the server's clock has shown: at once if the instant
// asked for was over then, and otherwise when the clock has gone on. It takes no longer
// than the caller waits.
func TestClosingTime(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", nil))
	closed := func(before time.Time) (at time.Time, shown []time.Time) {
		b.Log.Take()
		balance, _, err := b.history("alice").BalanceAsOf(t.Context(), before)
		require.NoError(t, err)
		for _, c := range b.Log.Take() {
			if c.Name == "hello" {
				shown = append(shown, c.Reply.Lookup("localTime").Time().UTC())
			}
		}
		return balance.At, shown
	}
	for _, before := range []time.Time{{}, time.Now().Add(time.Hour)} {
		at, shown := closed(before)
		require.Greater(t, len(shown), 1)
		require.Equal(t, shown[len(shown)-1], at)
		require.True(t, at.After(shown[0]), "what was committed before it was called, in the same millisecond even, is in it")
	}
	at, shown := closed(time.Now().Add(-time.Hour))
	require.Len(t, shown, 1)
	require.Equal(t, shown[0], at)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := b.history("alice").BalanceAsOf(ended, time.Time{})
	require.ErrorIs(t, err, context.Canceled)
}
