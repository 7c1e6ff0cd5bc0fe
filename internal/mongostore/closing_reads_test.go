package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// On one cluster, the account and the transfers are read as of one time, which the
// primary has reached when it has shown its clock; and pages are read from who has
// reached it.
func TestClosingReadsASnapshot(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"pending": bson.M{"t": int64(1)}}))
	h := b.history("alice")
	b.log.take()
	_, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	_, _, err = h.Page(t.Context(), history.NewestFirst, time.Time{}, moment(0), 10)
	require.NoError(t, err)
	commands := b.log.take()
	require.Equal(t, []string{"hello", "hello", "find", "find", "find", "find", "find"}, names(commands))
	commands = commands[1:]
	require.Equal(t, "local", commands[1].text("readConcern", "level"), "whose time is not that of the majority")
	reached := operationTime(commands[1].reply.Lookup("operationTime"))
	require.NotZero(t, reached)
	for _, c := range commands[2:5] {
		require.Equal(t, "snapshot", c.text("readConcern", "level"))
		require.Equal(t, reached, operationTime(c.body.Lookup("readConcern", "atClusterTime")))
	}
	require.Equal(t, "majority", commands[5].text("readConcern", "level"))
	require.Equal(t, reached, operationTime(commands[5].body.Lookup("readConcern", "afterClusterTime")))
}

// On two, the account is read by a linearizable read, and then the transfers, from who has shown by one to be the primary; and pages
// are read from who has stored no less.
func TestClosingApartReadsFromPrimaries(t *testing.T) {
	t.Parallel()
	accounts := newCommandLog()
	b := newBank(t, func(c *config) {
		other := mongotest.Client(t, accounts.options()).Database(c.Transfers.Database().Name())
		c.Ledgers[""] = other.Collection("accounts")
	})
	b.put(account("alice", bson.M{"pending": bson.M{"t": int64(1)}}))
	h := b.history("alice")
	b.log.take()
	_, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	_, _, err = h.Page(t.Context(), history.NewestFirst, time.Time{}, moment(0), 10)
	require.NoError(t, err)
	look := accounts.take()
	require.Equal(t, []string{"find"}, names(look))
	require.Equal(t, "linearizable", look[0].text("readConcern", "level"))
	commands := b.log.take()
	require.Equal(t, []string{"hello", "hello", "hello", "find", "find", "find", "find"}, names(commands))
	commands = commands[1:]
	require.Equal(t, "linearizable", commands[2].text("readConcern", "level"))
	shown := operationTime(commands[2].reply.Lookup("operationTime"))
	require.NotZero(t, shown)
	for _, c := range commands[3:] {
		require.Equal(t, "majority", c.text("readConcern", "level"))
		require.GreaterOrEqual(t, operationTime(c.body.Lookup("readConcern", "afterClusterTime")), shown)
	}
}

// Close closes the past at what the server's clock has shown: at once where what is asked
// for was over then, and else when the clock has gone on from where it was. It waits no
// longer than its caller does.
func TestClosingTime(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", nil))
	closed := func(before time.Time) (at time.Time, shown []time.Time) {
		b.log.take()
		closing, _, err := b.history("alice").BalanceAsOf(t.Context(), before)
		require.NoError(t, err)
		for _, c := range b.log.take() {
			if c.name == "hello" {
				shown = append(shown, c.reply.Lookup("localTime").Time().UTC())
			}
		}
		return closing.At, shown
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
