package waiters

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// lookouts returns how many goroutines of the library read transfers for waiting calls
// now.
func lookouts() int {
	return strings.Count(stacks(), strings.TrimSuffix(nameOf((*lookout.Lookout).Close), "Close"))
}

// A thousand calls that wait for as many transfers cost a handful of connections, and one
// command reads hundreds of transfers.
// Other calls go on undisturbed. All of them get their outcome.
// When no call waits any more, no read is sent.
func TestManyWaitersShareFewCommands(t *testing.T) {
	const many = 1000
	b := bank.New(t, 100, 0)
	_ = bank.Together(many, func(i int) error {
		_, err := b.Submit(t.Context(), bank.Later(fmt.Sprint("t", i), 1))
		return err
	})
	var sent bank.Traffic
	c := b.NewCoordinator(b.Through(sent.Client()))
	end := bank.CallAll(many, func(i int) (transfer.Record, error) { return c.Wait(t.Context(), fmt.Sprint("t", i)) })
	require.Eventually(t, func() bool { return sent.Glances.Load()+sent.More.Load() >= 5 }, time.Minute, time.Millisecond)
	assert.Less(t, sent.Commands(), int64(300), "each has looked by himself")
	assert.Less(t, sent.Connections.Load(), int64(12), "waiters hold connections")
	assert.Less(t, lookouts(), 12, "waiters hold goroutines")

	for _, a := range bank.CallAll(many, func(i int) (transfer.Record, error) {
		return b.Cancel(t.Context(), fmt.Sprint("t", i), "no longer wanted")
	})() {
		require.NoError(t, a.Err)
	}
	for i, a := range end() {
		require.ErrorIs(t, a.Err, transfer.ErrCancelled)
		require.Equal(t, fmt.Sprint("t", i), a.Rec.ID)
		require.Equal(t, transfer.StateFail, a.Rec.State)
	}
	require.Eventually(t, func() bool { return lookouts() == 0 }, time.Minute, 10*time.Millisecond, "somebody looks for nobody")
	b.CheckBooks(bank.Balances(100, 0))
}

// Close doesn't wait for calls that wait. They return in doubt, and no goroutine remains.
func TestCloseWhileManyWait(t *testing.T) {
	const many = 1000
	b := bank.New(t, 100, 0)
	_, err := b.Submit(t.Context(), bank.Later("t", 1))
	require.NoError(t, err)
	_, err = b.Submit(t.Context(), bank.Later("u", 1))
	require.NoError(t, err)
	b.MustHold("h", 1, time.Hour)
	var sent bank.Traffic
	c := b.NewCoordinator(b.Through(sent.Client()))
	end := bank.CallAll(many, func(i int) (transfer.Record, error) { return c.Wait(t.Context(), []string{"t", "u", "h"}[i%3]) })
	require.Eventually(t, func() bool { return sent.More.Load() > 0 }, time.Minute, time.Millisecond, "a stream is open")
	require.NoError(t, c.Close(t.Context()))
	for _, a := range end() {
		require.ErrorIs(t, a.Err, transfer.ErrInDoubt)
		require.ErrorIs(t, a.Err, transfer.ErrClosed)
	}
	require.Zero(t, lookouts())
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(100, 0))
}

// Without a change stream, calls that wait get their outcome all the same.
// The right to open one may be missing, or a stream may end.
// A stream that can't be opened is not tried again and again.
// A stream that has lost its cursor is resumed.
func TestWaitWithoutAStream(t *testing.T) {
	t.Parallel()
	const unauthorized, cursorNotFound = 13, 43
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	b := bank.Over(t, mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database("waiters"))
	require.NoError(t, b.Setup(t.Context()))
	b.OpenAccounts([]int64{100, 0})
	for app, c := range map[string]struct {
		mode    any
		command string
		code    int
		resumed bool
	}{
		"no right":       {"alwaysOn", "aggregate", unauthorized, false},
		"no right later": {"alwaysOn", "getMore", unauthorized, false},
		"cursor lost":    {bson.M{"times": 1}, "getMore", cursorNotFound, true},
	} {
		_, err := b.Submit(t.Context(), bank.Later(app, 1))
		require.NoError(t, err)
		var sent bank.Traffic
		client, err := mongo.Connect(sent.Client().ApplyURI(server.URI()).SetAppName(app))
		require.NoError(t, err)
		waiting := b.NewCoordinator(client.Database("waiters"))
		require.NoError(t, waiting.Check(t.Context()))
		aggregates := sent.Streams.Load()
		b.Failing(app, c.mode, c.command, c.code)
		begun := time.Now()
		end := bank.CallAll(10, func(int) (transfer.Record, error) { return waiting.Wait(t.Context(), app) })
		require.Eventually(t, func() bool { return sent.Streamless.Load() > 0 }, time.Minute, time.Millisecond)
		if c.resumed {
			require.Eventually(t, func() bool { return sent.Resumed.Load() > 0 }, time.Minute, time.Millisecond, "it is not resumed")
		} else {
			glances := sent.Glances.Load() // it goes on without a stream
			require.Eventually(t, func() bool { return sent.Glances.Load() > glances+10 }, time.Minute, time.Millisecond)
			asked := sent.Streams.Load() - aggregates
			assert.LessOrEqual(t, asked, 2+int64(time.Since(begun)/(5*time.Second)), "%s: it is asked for again and again", app)
		}
		_, err = b.Cancel(t.Context(), app, "no longer wanted")
		require.NoError(t, err)
		for _, a := range end() {
			require.ErrorIs(t, a.Err, transfer.ErrCancelled, app)
		}
		b.Failing(app, "off", c.command, c.code)
		require.NoError(t, waiting.Close(t.Context()))
		require.NoError(t, client.Disconnect(t.Context()))
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A stream with more changes than are worth reading is closed, because it costs those
// that make the changes.
// Waiting calls get their outcome all the same.
func TestBusyStreamIsGivenBack(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Submit(t.Context(), bank.Later("t", 1))
	require.NoError(t, err)
	var sent bank.Traffic
	c := b.NewCoordinator(b.Through(sent.Client()))
	end := bank.CallAll(10, func(int) (transfer.Record, error) { return c.Wait(t.Context(), "t") })
	require.Eventually(t, func() bool { return sent.More.Load() > 0 }, time.Minute, time.Millisecond)
	var busy []any
	for i := range 300 {
		busy = append(busy, bson.M{"_id": fmt.Sprint("busy", i), "state": "Committed"})
	}
	theirs := bson.M{"_id": bson.M{"$regex": "^busy"}}
	_, err = b.DB.Collection("transfers").InsertMany(t.Context(), busy)
	require.NoError(t, err)
	_, err = b.DB.Collection("transfers").UpdateMany(t.Context(), theirs, bson.M{"$set": bson.M{"state": "Success"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return sent.Closed.Load() > 0 }, time.Minute, time.Millisecond)
	_, err = b.DB.Collection("transfers").DeleteMany(t.Context(), theirs)
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), "t", "no longer wanted")
	require.NoError(t, err)
	for _, a := range end() {
		require.ErrorIs(t, a.Err, transfer.ErrCancelled)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Hundreds of calls for one transfer that hangs, by Transfer and by Wait, share the reads
// of it.
// None of them begins an execution that would only find the ID taken.
// At the end all of them get the outcome, each for its own payload.
func TestCallersOfOneIDShareTheirLooks(t *testing.T) {
	const many = 500
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	var sent bank.Traffic
	coord := b.NewCoordinator(b.Through(sent.Client()), transfer.WithStallThreshold(time.Hour))
	end := bank.CallAll(many, func(i int) (transfer.Record, error) {
		switch i % 3 {
		case 0:
			return coord.Wait(t.Context(), "t")
		case 1:
			return coord.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
		}
		return coord.Transfer(t.Context(), bank.Move("t", "a", "b", 61))
	})
	require.Eventually(t, func() bool { return sent.Glances.Load()+sent.More.Load() >= 5 }, time.Minute, time.Millisecond)
	assert.Less(t, sent.Writes.Load(), int64(many/3/5), "each has tried to store it")
	assert.Less(t, sent.Commands(), int64(many/3), "each has looked by himself")
	assert.Less(t, sent.Connections.Load(), int64(12), "they hold connections")
	for _, c := range []struct {
		units int64
		want  error
	}{{60, transfer.ErrUnsettled}, {61, transfer.ErrIDConflict}} {
		var err error
		for span := 2 * time.Second; !errors.Is(err, c.want) && span < time.Minute; span *= 2 {
			short, cancel := context.WithTimeout(t.Context(), span) // long enough for a look
			_, err = coord.Transfer(short, bank.Move("t", "a", "b", c.units))
			cancel()
		}
		require.ErrorIs(t, err, c.want, "each has its own context, and its own answer")
	}
	b.RecoverAll()
	for i, a := range end() {
		if i%3 == 2 {
			require.ErrorIs(t, a.Err, transfer.ErrIDConflict)
			continue
		}
		require.NoError(t, a.Err)
		require.Equal(t, transfer.StateSuccess, a.Rec.State)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// If many calls wait for a stalled transfer, one of them takes it over, once, for all.
func TestOneOfManyTakesOver(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	b.Silence("t", time.Minute)
	c := b.NewCoordinator(b.DB)
	moves := func(int) (transfer.Record, error) { return c.Transfer(t.Context(), bank.Move("t", "a", "b", 60)) }
	for _, a := range bank.CallAll(100, moves)() {
		require.NoError(t, a.Err)
		require.Equal(t, transfer.StateSuccess, a.Rec.State)
		require.EqualValues(t, 2, a.Rec.Epoch)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// If many calls ask at once for a submitted transfer, one of them runs it.
func TestOneOfManyRunsWhatWaits(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Submit(t.Context(), bank.Later("t", 60))
	require.NoError(t, err)
	var sent bank.Traffic
	c := b.NewCoordinator(b.Through(sent.Client()))
	moves := func(int) (transfer.Record, error) { return c.Transfer(t.Context(), bank.Move("t", "a", "b", 60)) }
	for _, a := range bank.CallAll(100, moves)() {
		require.NoError(t, a.Err)
		require.Equal(t, transfer.StateSuccess, a.Rec.State)
	}
	require.Less(t, sent.Writes.Load(), int64(20), "each has tried to claim it")
	b.CheckBooks(bank.Balances(100, 0))
}

// Several calls come at once with one ID and different payloads.
// Those with the stored payload get its outcome, and the others ErrIDConflict.
func TestPayloadsOfOneIDRace(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0)
	moved := int64(0)
	for round := range 20 {
		id := fmt.Sprint("t", round)
		answers := bank.CallAll(30, func(i int) (transfer.Record, error) {
			if i%3 == 2 {
				return b.Hold(t.Context(), bank.Move(id, "a", "b", 1), time.Hour)
			}
			return b.Transfer(t.Context(), bank.Move(id, "a", "b", int64(1+i%3)))
		})()
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		for i, a := range answers {
			mine := i%3 == 2 && rec.Hold || i%3 != 2 && !rec.Hold && rec.Legs[0].Amount.Cmp(transfer.Units(-int64(1+i%3))) == 0
			if !mine {
				require.ErrorIs(t, a.Err, transfer.ErrIDConflict)
				continue
			}
			require.NoError(t, a.Err)
			bank.RequireSame(t, rec, a.Rec)
		}
		if rec.Hold {
			_, err = b.Void(t.Context(), id)
			require.NoError(t, err)
		} else if rec.Legs[0].Amount.Cmp(transfer.Units(-1)) == 0 {
			moved++
		} else {
			moved += 2
		}
	}
	require.Equal(t, map[string]int64{"a": 1000 - moved, "b": moved}, b.Balances())
	b.CheckBooks(bank.Balances(1000, 0))
}

// A second caller with the same ID goes on when the first one's context ends before
// anything was sent.
// The first call returns its context's error, and the second one moves the money.
// A waiting caller whose own context ends stops waiting.
func TestNextCallerGoesOn(t *testing.T) {
	b := bank.New(t, 100, 0)
	net := &bank.Silence{}
	var sent bank.Traffic
	client := sent.Client().SetDialer(net).SetConnectTimeout(time.Second)
	c := b.NewCoordinator(b.Through(client), transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 1}))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	before := sent.Writes.Load()
	net.Set(true) // the only place is taken, for as long as nobody answers
	hanging, release := context.WithCancel(t.Context())
	defer release()
	place := bank.CallAll(1, func(int) (transfer.Record, error) { return c.Transfer(hanging, bank.Move("in the way", "a", "b", 1)) })
	require.Eventually(t, func() bool { return sent.Writes.Load() > before }, 5*time.Minute, time.Millisecond)

	first, leave := context.WithCancelCause(t.Context())
	leader := bank.CallAll(1, func(int) (transfer.Record, error) { return c.Transfer(first, bank.Move("t", "a", "b", 10)) })
	require.Eventually(t, func() bool { return callsOf((*engine.Engine).Execute) == 2 }, 5*time.Minute, time.Millisecond)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Transfer(short, bank.Move("t", "a", "b", 10))
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for another one's context")
	others := bank.CallAll(5, func(int) (transfer.Record, error) { return c.Transfer(t.Context(), bank.Move("t", "a", "b", 10)) })
	require.Eventually(t, func() bool { return callsOf((*lookout.Watch).Look) == 5 }, 5*time.Minute, time.Millisecond)
	leave(errors.New("gone"))
	told := leader()[0]
	require.ErrorIs(t, told.Err, context.Canceled)
	require.NotErrorIs(t, told.Err, transfer.ErrInDoubt, "nothing was sent")
	net.Set(false)
	for _, a := range others() {
		require.NoError(t, a.Err, "it was told what is true for another one")
		require.Equal(t, transfer.StateSuccess, a.Rec.State)
	}
	for _, a := range place() {
		require.NoError(t, a.Err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// callsOf counts the calls of a function that are under way, in all goroutines.
func callsOf(function any) int {
	return strings.Count(stacks(), nameOf(function)+"(")
}

// nameOf returns the name of a function, or of a method, as it stands in a stack.
func nameOf(function any) string {
	return runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name()
}

func stacks() string {
	all := make([]byte, 8<<20)
	return string(all[:runtime.Stack(all, true)])
}
