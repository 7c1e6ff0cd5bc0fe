package history_test

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
	"github.com/mongotransfer/transfer/internal/storetest"
)

// undecidedBank returns a bank in which alice has a marker of each of the transfers. They
// are prepared and not decided.
func undecidedBank(t *testing.T, apart bool, ids ...string) (*bank, *steps) {
	t.Helper()
	b, s := newStepBank(t, apart)
	pending := bson.M{}
	for _, id := range ids {
		pending[id] = int64(50)
		b.PutIn("transfers", undecided(id))
	}
	b.Put(storetest.Account("alice", bson.M{"pending": pending}))
	return b, s
}

// storeCommit stores a commit that took its time long before.
func (b *bank) storeCommit(id string, stamped time.Time) {
	b.T.Helper()
	b.Change("transfers", id, bson.M{"$set": bson.M{"state": "Committed", "committedAt": stamped}})
}

// requireOnly requires that alice's closed past has the given entries and their balance.
func requireOnly(t *testing.T, h *history.History, closed history.Balance, ids ...string) {
	t.Helper()
	entries, _, err := h.Page(t.Context(), history.OldestFirst, time.Time{}, closed.At, 10)
	require.NoError(t, err)
	var listed []string
	for _, e := range entries {
		listed = append(listed, e.TransferID)
	}
	require.Equal(t, ids, listed)
	require.Equal(t, money.Units(int64(100+50*len(ids))), closed.Balance)
}

// Whenever a commit from before the closing is stored, up to the moment when its transfer
// is barred, it is in the balance and in the pages.
func TestLateCommitIsIn(t *testing.T) {
	t.Parallel()
	type command struct{ read, barred int }
	for apart, c := range map[bool]command{false: {3, 6 + history.MaxReads}, true: {2, 7 + history.MaxReads}} {
		for at := c.read + 1; at <= c.barred; at++ {
			t.Run(fmt.Sprintf("apart=%v/%d", apart, at), func(t *testing.T) {
				t.Parallel()
				b, s := undecidedBank(t, apart, "t")
				h := b.history("alice")
				end := s.begin(map[int][]func(){at: {func() { b.storeCommit("t", moment(1)) }}})
				closed, found, err := h.BalanceAsOf(t.Context(), time.Time{})
				commands := end()
				require.NoError(t, err)
				require.True(t, found)
				require.Greater(t, commands, at, "it was stored")
				requireOnly(t, h, closed, "t")
			})
		}
	}
}

// A transfer that stays undecided doesn't delay the closing: it is barred, by a write
// that changes nothing else.
// A hold is barred at once. A transfer that doesn't concern the account is never barred.
func TestUndecidedIsBarred(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change        bson.M
		reads, barred int64
		listed        []string
	}{
		{bson.M{"$set": bson.M{"note": 1}}, history.MaxReads, 1, nil},
		{bson.M{"$set": bson.M{"hold": true, "held": true}}, 0, 1, nil},
		// Its executor is still preparing it.
		{bson.M{"$set": bson.M{"hold": true}}, history.MaxReads, 1, nil},
		{bson.M{"$set": bson.M{"legs.1.account": "carol"}}, 0, 0, nil},
		{bson.M{"$set": bson.M{"state": "Initiated"}}, 0, 0, nil},
		{bson.M{"$set": bson.M{"state": "Rollback"}}, 0, 0, nil},
		// Its state was set back by hand: it is an entry.
		{bson.M{"$set": bson.M{"committedAt": moment(1)}}, 0, 0, []string{"t"}},
	} {
		t.Run(fmt.Sprint(c.change), func(t *testing.T) {
			t.Parallel()
			b, s := undecidedBank(t, false, "t")
			b.Change("transfers", "t", c.change)
			want := storetest.AsMap(t, b.Raw("transfers", "t"))
			h := b.history("alice")
			end := s.begin(nil)
			closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.EqualValues(t, 7+c.reads+c.barred, end(), "commands")
			require.NoError(t, err)
			requireOnly(t, h, closed, c.listed...)
			if c.barred > 0 {
				want["verified"] = c.barred
			}
			b.Has("transfers", want)
		})
	}
}

// A hold among transfers that are about to be decided waits with them, so that no
// transfer is written to without need.
func TestHoldsAreBarredWithTheOthers(t *testing.T) {
	t.Parallel()
	requireBarred(t, []string{"1", "3"}, 9, 11, 1, "three reads, and one write to the holds")
}

// If not all transfers could be barred, nothing is known of any. Another read shows which
// one has just been committed, and the others are barred again.
func TestNotAllAreBarred(t *testing.T) {
	t.Parallel()
	requireBarred(t, []string{"1", "2", "3"}, 7, 10, 2, "another read, and another write")
}

// requireBarred closes a past with the undecided transfers 1, 2 and 3, some of which are
// holds.
// The commit of 2 is stored before a command. It requires the number of times that each
// of the others is barred, and the number of commands.
func requireBarred(t *testing.T, holds []string, stored, commands int, times int64, story string) {
	t.Helper()
	b, s := undecidedBank(t, false, "1", "2", "3")
	for _, id := range holds {
		b.Change("transfers", id, bson.M{"$set": bson.M{"held": true}})
	}
	h := b.history("alice")
	end := s.begin(map[int][]func(){stored: {func() { b.storeCommit("2", moment(1)) }}})
	closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.Equal(t, commands, end(), story)
	require.NoError(t, err)
	requireOnly(t, h, closed, "2")
	for id, barred := range map[string]any{"1": times, "2": nil, "3": times} {
		require.Equal(t, barred, storetest.AsMap(t, b.Raw("transfers", id))["verified"])
	}
}

// Holds by the hundred are barred in portions. One that is decided meanwhile has its own
// portion barred again, and no other.
func TestHoldsAreBarredInPortions(t *testing.T) {
	t.Parallel()
	ids := make([]string, 2*history.MaxBarred+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("h%03d", i)
	}
	b, s := undecidedBank(t, false, ids...)
	for _, id := range ids {
		b.Change("transfers", id, bson.M{"$set": bson.M{"held": true}})
	}
	b.pay(ids[0]) // it is committed by fact, and its record comes after the end
	h := b.history("alice")
	// Before it, the first portion is read and barred, and the second one is read.
	const secondBar = 10
	decided := ids[history.MaxBarred]
	end := s.begin(map[int][]func(){secondBar: {func() { b.storeCommit(decided, moment(1)) }}})
	closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.Equal(t, secondBar+5, end(), "the second portion once more, and the third")
	require.NoError(t, err)
	requireOnly(t, h, closed, decided)
	for i, id := range ids {
		want := any(int64(1))
		if i/history.MaxBarred == 1 {
			want = int64(2)
		}
		if id == decided {
			want = nil
		}
		require.Equal(t, want, storetest.AsMap(t, b.Raw("transfers", id))["verified"], id)
	}
}

// Undecided transfers are read after what the account was read with, and pages show what
// was seen of them.
func TestReadsAreCausal(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.flush()
	b.PutIn("transfers", undecided("t"))
	b.Put(storetest.Account("alice", bson.M{"pending": bson.M{"t": int64(50)}}))
	b.closeAndRead()
	commands := b.Log.Take()
	require.Len(t, commands, 7+history.MaxReads+2)
	shown := operationTime(commands[2].Reply.Lookup("operationTime"))
	for i, c := range commands[7:] {
		if c.Name == "find" {
			require.Equal(t, "majority", c.Text("readConcern", "level"))
			require.GreaterOrEqual(t, operationTime(c.Body.Lookup("readConcern", "afterClusterTime")), shown, "read %d", i)
		}
		shown = operationTime(c.Reply.Lookup("operationTime"))
		require.NotZero(t, shown)
	}
}

// A commit that the server has stamped and not stored is in the way of the bar, which
// waits for it. A caller who stops waiting gets the error of that.
func TestBarWaitsForACommit(t *testing.T) {
	t.Parallel()
	b, _ := undecidedBank(t, false, "t")
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	stamp := bson.M{"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true}}
	_, err = b.DB.Collection("transfers").UpdateOne(in, bson.M{"_id": "t"}, stamp)
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
	closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
	require.NoError(t, err)
	requireOnly(t, h, closed, "t")
}

// A commit that has read its transfer before the bar is not stored after the bar with the
// time that it has taken.
func TestBarredCommitBeginsAgain(t *testing.T) {
	t.Parallel()
	b, _ := undecidedBank(t, false, "t")
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	require.NoError(t, b.DB.Collection("transfers").FindOne(in, bson.M{"_id": "t"}).Err())
	done, err := b.history("alice").Bar(t.Context(), []string{"t"})
	require.NoError(t, err)
	require.True(t, done)
	_, err = b.DB.Collection("transfers").UpdateOne(in, bson.M{"_id": "t"}, bson.M{"$set": bson.M{"state": "Committed"}})
	var conflict mongo.CommandError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "WriteConflict", conflict.Name)
	require.NoError(t, session.AbortTransaction(in))
}

// A commit that meets another write begins again in the server, and takes a new time.
// That of its first try is never stored.
func TestCommitThatBeginsAgainTakesANewTime(t *testing.T) {
	t.Parallel()
	b, _ := undecidedBank(t, false, "t")
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	transfers := b.DB.Collection("transfers")
	_, err = transfers.UpdateOne(in, bson.M{"_id": "t"}, bson.M{"$inc": bson.M{"verified": 1}})
	require.NoError(t, err)
	committed := make(chan error, 1)
	go func() {
		stamp := bson.M{"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true}}
		_, err := transfers.UpdateOne(t.Context(), bson.M{"_id": "t"}, stamp)
		committed <- err
	}()
	require.Eventually(t, func() bool {
		cursor, err := b.DB.Client().Database("admin").Aggregate(t.Context(), bson.A{
			bson.M{"$currentOp": bson.M{}},
			bson.M{"$match": bson.M{"ns": b.DB.Name() + ".transfers", "writeConflicts": bson.M{"$gt": 0}}},
		})
		var tried []bson.M
		return err == nil && cursor.All(t.Context(), &tried) == nil && len(tried) > 0
	}, 5*time.Minute, 10*time.Millisecond, "the commit has not been tried")
	require.NoError(t, collections.Pause(t.Context(), 2*document.Tick))
	shown, err := b.Store.Clocks(t.Context())
	require.NoError(t, err)
	require.NoError(t, session.CommitTransaction(in))
	require.NoError(t, <-committed)
	stamped := b.Raw("transfers", "t").Lookup("committedAt").Time()
	require.False(t, stamped.Before(shown.Earliest))
}
