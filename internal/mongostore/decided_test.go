package mongostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
)

// outstandingBank has alice, with a marker of each of the transfers, which are prepared
// and not decided.
func outstandingBank(t *testing.T, apart bool, ids ...string) (*bank, *steps) {
	t.Helper()
	b, s := newStepBank(t, apart)
	pending := bson.M{}
	for _, id := range ids {
		pending[id] = int64(50)
		open := past(id, moment(0), 50)
		open["state"] = "Preparing"
		delete(open, "committedAt")
		b.putIn("transfers", open)
	}
	b.put(account("alice", bson.M{"pending": pending}))
	return b, s
}

// show lets a commit show that took its time long before.
func (b *bank) show(id string, stamped time.Time) {
	b.t.Helper()
	b.change("transfers", id, bson.M{"$set": bson.M{"state": "Committed", "committedAt": stamped}})
}

// requireOnly requires that alice's past, closed at the end of a closing, has the given
// entries and their balance.
func requireOnly(t *testing.T, h *history.History, closing history.Balance, ids ...string) {
	t.Helper()
	entries, _, err := h.Page(t.Context(), history.OldestFirst, time.Time{}, closing.At, 10)
	require.NoError(t, err)
	var told []string
	for _, e := range entries {
		told = append(told, e.TransferID)
	}
	require.Equal(t, ids, told)
	require.Equal(t, money.Units(int64(100+50*len(ids))), closing.Balance)
}

// Whenever a commit from before the closing shows, up to the moment when its transfer is
// barred, it is in the balance and in the pages.
func TestLateCommitIsIn(t *testing.T) {
	t.Parallel()
	type command struct{ read, barred int }
	for apart, c := range map[bool]command{false: {3, 6 + history.MaxLooks}, true: {2, 7 + history.MaxLooks}} {
		for at := c.read + 1; at <= c.barred; at++ {
			t.Run(fmt.Sprintf("apart=%v/%d", apart, at), func(t *testing.T) {
				t.Parallel()
				b, s := outstandingBank(t, apart, "t")
				h := b.history("alice")
				end := s.begin(map[int][]func(){at: {func() { b.show("t", moment(1)) }}})
				closing, found, err := h.BalanceAsOf(t.Context(), time.Time{})
				commands := end()
				require.NoError(t, err)
				require.True(t, found)
				require.Greater(t, commands, at, "it has shown")
				requireOnly(t, h, closing, "t")
			})
		}
	}
}

// A transfer that stays undecided keeps nobody waiting: it is barred, by a write that
// changes nothing else. What is held is barred at once, what is no concern of the account
// never.
func TestOutstandingIsBarred(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change        bson.M
		looks, barred int64
		told          []string
	}{
		{bson.M{"$set": bson.M{"note": 1}}, history.MaxLooks, 1, nil},
		{bson.M{"$set": bson.M{"hold": true, "held": true}}, 0, 1, nil},
		// Its executor is still at it.
		{bson.M{"$set": bson.M{"hold": true}}, history.MaxLooks, 1, nil},
		{bson.M{"$set": bson.M{"legs.1.account": "carol"}}, 0, 0, nil},
		{bson.M{"$set": bson.M{"state": "Initiated"}}, 0, 0, nil},
		{bson.M{"$set": bson.M{"state": "Rollback"}}, 0, 0, nil},
		// Somebody has set its state back: it is told.
		{bson.M{"$set": bson.M{"committedAt": moment(1)}}, 0, 0, []string{"t"}},
	} {
		t.Run(fmt.Sprint(c.change), func(t *testing.T) {
			t.Parallel()
			b, s := outstandingBank(t, false, "t")
			b.change("transfers", "t", c.change)
			want := asMap(t, b.raw("transfers", "t"))
			h := b.history("alice")
			end := s.begin(nil)
			closing, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.EqualValues(t, 6+c.looks+c.barred, end(), "commands")
			require.NoError(t, err)
			requireOnly(t, h, closing, c.told...)
			if c.barred > 0 {
				want["verified"] = c.barred
			}
			b.has("transfers", want)
		})
	}
}

// A hold among transfers that are about to be decided waits with them: they are not
// written to without need.
func TestHoldsAreBarredWithTheOthers(t *testing.T) {
	t.Parallel()
	b, s := outstandingBank(t, false, "1", "2", "3")
	b.change("transfers", "1", bson.M{"$set": bson.M{"held": true}})
	b.change("transfers", "3", bson.M{"$set": bson.M{"held": true}})
	h := b.history("alice")
	end := s.begin(map[int][]func(){8: {func() { b.show("2", moment(1)) }}})
	closing, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.Equal(t, 10, end(), "three looks, and one write to the holds")
	require.NoError(t, err)
	requireOnly(t, h, closing, "2")
	for id, barred := range map[string]any{"1": int64(1), "2": nil, "3": int64(1)} {
		require.Equal(t, barred, asMap(t, b.raw("transfers", id))["verified"])
	}
}

// Where not all could be barred, nothing is known of any: who has just been committed is
// told by another look, the others are barred again.
func TestNotAllAreBarred(t *testing.T) {
	t.Parallel()
	b, s := outstandingBank(t, false, "1", "2", "3")
	for _, id := range []string{"1", "2", "3"} {
		b.change("transfers", id, bson.M{"$set": bson.M{"held": true}})
	}
	h := b.history("alice")
	end := s.begin(map[int][]func(){6: {func() { b.show("2", moment(1)) }}})
	closing, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.Equal(t, 9, end(), "another look, and another write")
	require.NoError(t, err)
	requireOnly(t, h, closing, "2")
	for id, barred := range map[string]any{"1": int64(2), "2": nil, "3": int64(2)} {
		require.Equal(t, barred, asMap(t, b.raw("transfers", id))["verified"])
	}
}

// Outstanding transfers are looked at where no less has come than what the account was
// read with, and pages show what was seen of them.
func TestLooksAreCausal(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.flush()
	open := past("t", moment(0), 50)
	open["state"] = "Preparing"
	delete(open, "committedAt")
	b.putIn("transfers", open)
	b.put(account("alice", bson.M{"pending": bson.M{"t": int64(50)}}))
	h := b.history("alice")
	b.log.take()
	_, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	_, _, err = h.Page(t.Context(), history.NewestFirst, time.Time{}, moment(0), 10)
	require.NoError(t, err)
	commands := b.log.take()
	require.Len(t, commands, 6+history.MaxLooks+2)
	shown := operationTime(commands[2].reply.Lookup("operationTime"))
	for i, c := range commands[6:] {
		if c.name == "find" {
			require.Equal(t, "majority", c.text("readConcern", "level"))
			require.GreaterOrEqual(t, operationTime(c.body.Lookup("readConcern", "afterClusterTime")), shown, "look %d", i)
		}
		shown = operationTime(c.reply.Lookup("operationTime"))
		require.NotZero(t, shown)
	}
}

// A commit that the server has stamped and not stored is in the way of the bar, which
// waits for it. Who stops waiting is told so.
func TestBarWaitsForACommit(t *testing.T) {
	t.Parallel()
	b, _ := outstandingBank(t, false, "t")
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	stamp := bson.M{"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true}}
	_, err = b.db.Collection("transfers").UpdateOne(in, bson.M{"_id": "t"}, stamp)
	require.NoError(t, err)

	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, _, err = b.history("alice").BalanceAsOf(soon, time.Time{})
	require.True(t, mongo.IsTimeout(err), "it has waited: %v", err)

	h := b.history("alice")
	barred := make(chan error, 1)
	go func() {
		done, err := h.Bar(t.Context(), []string{"t"})
		if done {
			err = fmt.Errorf("a committed transfer was barred")
		}
		barred <- err
	}()
	require.NoError(t, session.CommitTransaction(in))
	require.NoError(t, <-barred)
	closing, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	requireOnly(t, h, closing, "t")
}

// A commit that has read its transfer before the bar is not stored after it with the time
// that it has taken.
func TestBarredCommitBeginsAgain(t *testing.T) {
	t.Parallel()
	b, _ := outstandingBank(t, false, "t")
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	require.NoError(t, b.db.Collection("transfers").FindOne(in, bson.M{"_id": "t"}).Err())
	done, err := b.history("alice").Bar(t.Context(), []string{"t"})
	require.NoError(t, err)
	require.True(t, done)
	_, err = b.db.Collection("transfers").UpdateOne(in, bson.M{"_id": "t"}, bson.M{"$set": bson.M{"state": "Committed"}})
	var conflict mongo.CommandError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "WriteConflict", conflict.Name)
	require.NoError(t, session.AbortTransaction(in))
}

// A commit that meets another write begins again in the server, and takes a new time:
// that of its first try is never stored.
func TestCommitThatBeginsAgainTakesANewTime(t *testing.T) {
	t.Parallel()
	b, _ := outstandingBank(t, false, "t")
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	transfers := b.db.Collection("transfers")
	_, err = transfers.UpdateOne(in, bson.M{"_id": "t"}, bson.M{"$inc": bson.M{"verified": 1}})
	require.NoError(t, err)
	committed := make(chan error, 1)
	go func() {
		stamp := bson.M{"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true}}
		_, err := transfers.UpdateOne(t.Context(), bson.M{"_id": "t"}, stamp)
		committed <- err
	}()
	require.Eventually(t, func() bool {
		cursor, err := b.db.Client().Database("admin").Aggregate(t.Context(), bson.A{
			bson.M{"$currentOp": bson.M{}},
			bson.M{"$match": bson.M{"ns": b.db.Name() + ".transfers", "writeConflicts": bson.M{"$gt": 0}}},
		})
		var tried []bson.M
		return err == nil && cursor.All(t.Context(), &tried) == nil && len(tried) > 0
	}, 30*time.Second, 10*time.Millisecond, "the commit has not been tried")
	require.NoError(t, collections.Pause(t.Context(), 2*document.Tick))
	shown, err := b.store.Clocks(t.Context())
	require.NoError(t, err)
	require.NoError(t, session.CommitTransaction(in))
	require.NoError(t, <-committed)
	stamped := b.raw("transfers", "t").Lookup("committedAt").Time()
	require.False(t, stamped.Before(shown.Earliest))
}

// Through a mongos the clocks of the shards are asked for, of which the earliest closes
// the past, and the latest what was asked.
func TestClocksOfShards(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	before, err := collections.Hello(t.Context(), b.store.Transfers)
	require.NoError(t, err)
	b.store.CheckedClients.Store(b.store.Transfers.Database().Client(), true)
	b.log.take()
	shown, err := b.store.Clocks(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"aggregate"}, names(b.log.take()))
	require.False(t, shown.Earliest.Before(before.LocalTime))
	require.Equal(t, shown.Earliest, shown.Latest, "there is one")
	for _, ms := range []int{5, 3, 9, 4} {
		shown = collections.Clocks{moment(4), moment(4)}.With(moment(ms)).With(moment(5))
		require.Equal(t, collections.Clocks{moment(min(4, ms)), moment(max(5, ms))}, shown)
		require.Equal(t, ms == 9, collections.Clocks{moment(ms), moment(10)}.Passed(collections.Clocks{moment(1), moment(5)}))
	}
	b.put(account("alice", nil))
	_, found, err := b.history("alice").BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	require.True(t, found)
}

// Commits are stamped by the clock that is asked for: it shows no time before them that
// is later than theirs, and none after them that is earlier. A server that stamped by a
// coarser clock would store commits in a past that is closed.
func TestCommitsAreStampedByTheShownClock(t *testing.T) {
	t.Parallel()
	for _, routed := range []bool{false, true} {
		b := newBank(t)
		require.NoError(t, b.store.Setup(t.Context()))
		b.store.CheckedClients.Store(b.store.Transfers.Database().Client(), routed)
		b.putIn("transfers", bson.M{"_id": "t"})
		for range 200 {
			first, err := b.store.Clocks(t.Context())
			require.NoError(t, err)
			b.change("transfers", "t", bson.M{"$currentDate": bson.M{"committedAt": true}, "$inc": bson.M{"n": 1}})
			second, err := b.store.Clocks(t.Context())
			require.NoError(t, err)
			stamped := b.raw("transfers", "t").Lookup("committedAt").Time()
			require.False(t, stamped.Before(first.Earliest))
			require.False(t, stamped.After(second.Latest))
		}
	}
}
