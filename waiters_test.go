package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// traffic is what a client sends.
type traffic struct {
	connections         atomic.Int64
	reads, glances      atomic.Int64 // of transfers
	streams, more       atomic.Int64
	closed              atomic.Int64 // streams that were given back
	writes              atomic.Int64 // of transfers: statements
	streamless, resumed atomic.Int64 // streams, or requests for changes, that were refused; streams that were resumed
}

func (f *traffic) client() *options.ClientOptions {
	pool := &event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.Type == event.ConnectionCreated {
			f.connections.Add(1)
		}
	}}
	return options.Client().SetPoolMonitor(pool).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { f.count(e) },
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			if e.CommandName == "aggregate" || e.CommandName == "getMore" {
				f.streamless.Add(1)
			}
		},
	})
}

func (f *traffic) count(e *event.CommandStartedEvent) {
	switch e.CommandName {
	case "find":
		if name, _ := e.Command.Lookup("find").StringValueOK(); name != "transfers" {
			return
		}
		if _, err := e.Command.LookupErr("projection"); err == nil {
			f.glances.Add(1)
		} else {
			f.reads.Add(1)
		}
	case "aggregate":
		f.streams.Add(1)
		if strings.Contains(e.Command.String(), "resumeAfter") {
			f.resumed.Add(1)
		}
	case "getMore":
		f.more.Add(1)
	case "killCursors":
		f.closed.Add(1)
	case "insert", "update":
		if name, _ := e.Command.Lookup(e.CommandName).StringValueOK(); name != "transfers" {
			return
		}
		for _, list := range []string{"documents", "updates"} {
			statements, _ := e.Command.Lookup(list).ArrayOK()
			values, _ := statements.Values()
			f.writes.Add(int64(len(values)))
		}
	case "findAndModify":
		f.writes.Add(1)
	}
}

// commands are those that looks at transfers take.
func (f *traffic) commands() int64 {
	return f.reads.Load() + f.glances.Load() + f.streams.Load() + f.more.Load()
}

// answer is what a call was told.
type answer struct {
	rec transfer.Record
	err error
}

// callAll makes so many calls at once, and returns a function that waits for their
// answers.
func callAll(n int, call func(i int) (transfer.Record, error)) func() []answer {
	var all sync.WaitGroup
	answers := make([]answer, n)
	for i := range n {
		all.Go(func() { answers[i].rec, answers[i].err = call(i) })
	}
	return func() []answer {
		all.Wait()
		return answers
	}
}

// lookouts returns how many calls look at transfers just now, in goroutines of the
// library.
func lookouts() int {
	return strings.Count(stacks(), "internal/lookout.(*Lookout).")
}

// A thousand who wait for as many transfers cost a handful of connections, and a command
// looks at hundreds: others go on undisturbed. All are told. Nobody looks when nobody
// waits any more.
func TestManyWaitersShareFewCommands(t *testing.T) {
	const many = 1000
	b := newBank(t, 100, 0)
	_ = together(many, func(i int) error {
		_, err := b.Submit(t.Context(), later(fmt.Sprint("t", i), 1))
		return err
	})
	var sent traffic
	c := b.coordinator(b.through(sent.client()))
	end := callAll(many, func(i int) (transfer.Record, error) { return c.Wait(t.Context(), fmt.Sprint("t", i)) })
	require.Eventually(t, func() bool { return sent.glances.Load()+sent.more.Load() >= 5 }, time.Minute, time.Millisecond)
	assert.Less(t, sent.commands(), int64(300), "each has looked by himself")
	assert.Less(t, sent.connections.Load(), int64(12), "waiters hold connections")
	assert.Less(t, lookouts(), 12, "waiters hold goroutines")

	for _, a := range callAll(many, func(i int) (transfer.Record, error) {
		return b.Cancel(t.Context(), fmt.Sprint("t", i), "no longer wanted")
	})() {
		require.NoError(t, a.err)
	}
	for i, a := range end() {
		require.ErrorIs(t, a.err, transfer.ErrCancelled)
		require.Equal(t, fmt.Sprint("t", i), a.rec.ID)
		require.Equal(t, transfer.StateFail, a.rec.State)
	}
	require.Eventually(t, func() bool { return lookouts() == 0 }, time.Minute, 10*time.Millisecond, "somebody looks for nobody")
	b.audit(initial(100, 0))
}

// Close doesn't wait for those who wait: they are told that it is in doubt, and nothing
// is left running.
func TestCloseWhileManyWait(t *testing.T) {
	const many = 1000
	b := newBank(t, 100, 0)
	_, err := b.Submit(t.Context(), later("t", 1))
	require.NoError(t, err)
	_, err = b.Submit(t.Context(), later("u", 1))
	require.NoError(t, err)
	b.hold("h", 1, time.Hour)
	var sent traffic
	c := b.coordinator(b.through(sent.client()))
	end := callAll(many, func(i int) (transfer.Record, error) { return c.Wait(t.Context(), []string{"t", "u", "h"}[i%3]) })
	require.Eventually(t, func() bool { return sent.more.Load() > 0 }, time.Minute, time.Millisecond, "a stream is open")
	require.NoError(t, c.Close(t.Context()))
	for _, a := range end() {
		require.ErrorIs(t, a.err, transfer.ErrInDoubt)
		require.ErrorIs(t, a.err, transfer.ErrClosed)
	}
	require.Zero(t, lookouts())
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.cancelWaiting()
	b.audit(initial(100, 0))
}

// failing makes the server of a bank, which is its own, fail commands of a client.
func (b *bank) failing(app string, mode any, command string, code int) {
	b.t.Helper()
	require.NoError(b.t, b.db.Client().Database("admin").RunCommand(b.t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
		{Key: "data", Value: bson.M{"failCommands": bson.A{command}, "appName": app, "errorCode": code}},
	}).Err())
}

// Without a change stream those who wait are told all the same, be it that there is no
// right to open one, or that one comes to its end. One that can't be opened is not asked
// for again and again. One whose cursor is lost is resumed.
func TestWaitWithoutAStream(t *testing.T) {
	t.Parallel()
	const unauthorized, cursorNotFound = 13, 43
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	b := &bank{t: t, db: mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database("waiters")}
	b.Coordinator = b.coordinator(b.db)
	require.NoError(t, b.Setup(t.Context()))
	b.open([]int64{100, 0})
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
		_, err := b.Submit(t.Context(), later(app, 1))
		require.NoError(t, err)
		var sent traffic
		client, err := mongo.Connect(sent.client().ApplyURI(server.URI()).SetAppName(app))
		require.NoError(t, err)
		waiting := b.coordinator(client.Database("waiters"))
		require.NoError(t, waiting.Check(t.Context()))
		aggregates := sent.streams.Load()
		b.failing(app, c.mode, c.command, c.code)
		begun := time.Now()
		end := callAll(10, func(int) (transfer.Record, error) { return waiting.Wait(t.Context(), app) })
		require.Eventually(t, func() bool { return sent.streamless.Load() > 0 }, time.Minute, time.Millisecond)
		if c.resumed {
			require.Eventually(t, func() bool { return sent.resumed.Load() > 0 }, time.Minute, time.Millisecond, "it is not resumed")
		} else {
			glances := sent.glances.Load() // it goes on without
			require.Eventually(t, func() bool { return sent.glances.Load() > glances+10 }, time.Minute, time.Millisecond)
			asked := sent.streams.Load() - aggregates
			assert.LessOrEqual(t, asked, 2+int64(time.Since(begun)/(5*time.Second)), "%s: it is asked for again and again", app)
		}
		_, err = b.Cancel(t.Context(), app, "no longer wanted")
		require.NoError(t, err)
		for _, a := range end() {
			require.ErrorIs(t, a.err, transfer.ErrCancelled, app)
		}
		b.failing(app, "off", c.command, c.code)
		require.NoError(t, waiting.Close(t.Context()))
		require.NoError(t, client.Disconnect(t.Context()))
	}
	b.audit(initial(100, 0))
}

// A stream that tells of more than is worth while is given back: it would cost those
// whose transfers it tells of. Who waits is told all the same.
func TestBusyStreamIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	_, err := b.Submit(t.Context(), later("t", 1))
	require.NoError(t, err)
	var sent traffic
	c := b.coordinator(b.through(sent.client()))
	end := callAll(10, func(int) (transfer.Record, error) { return c.Wait(t.Context(), "t") })
	require.Eventually(t, func() bool { return sent.more.Load() > 0 }, time.Minute, time.Millisecond)
	var busy []any
	for i := range 300 {
		busy = append(busy, bson.M{"_id": fmt.Sprint("busy", i), "state": "Committed"})
	}
	theirs := bson.M{"_id": bson.M{"$regex": "^busy"}}
	_, err = b.db.Collection("transfers").InsertMany(t.Context(), busy)
	require.NoError(t, err)
	_, err = b.db.Collection("transfers").UpdateMany(t.Context(), theirs, bson.M{"$set": bson.M{"state": "Success"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return sent.closed.Load() > 0 }, time.Minute, time.Millisecond)
	_, err = b.db.Collection("transfers").DeleteMany(t.Context(), theirs)
	require.NoError(t, err)
	_, err = b.Cancel(t.Context(), "t", "no longer wanted")
	require.NoError(t, err)
	for _, a := range end() {
		require.ErrorIs(t, a.err, transfer.ErrCancelled)
	}
	b.audit(initial(100, 0))
}

// Who waits while no server can be reached is told so after 30 s, with the cause, whether
// it waits for a transfer or wants to move money by it.
func TestWaitersOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	w := &wire{at: -1}
	var sent traffic
	c := b.coordinator(b.through(sent.client().SetDialer(w)))
	ahead := c.ClockAhead()
	end := callAll(2, func(i int) (transfer.Record, error) {
		if i == 0 {
			return c.Wait(t.Context(), "t")
		}
		return c.Transfer(t.Context(), move("t", "a", "b", 60))
	})
	require.Eventually(t, func() bool { return sent.more.Load() > 0 }, time.Minute, time.Millisecond)
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	done := make(chan []answer, 1)
	go func() { done <- end() }()
	var answers []answer
	later := time.Duration(0)
	require.Eventually(t, func() bool {
		later += time.Minute
		ahead(later)
		select {
		case answers = <-done:
			return true
		default:
			return false
		}
	}, time.Minute, 100*time.Millisecond)
	for _, a := range answers {
		require.ErrorIs(t, a.err, transfer.ErrUnsettled, "it was seen to be committed")
		require.ErrorContains(t, a.err, cutOff().Error())
	}
	b.recoverAll()
	b.audit(initial(100, 0))
}

// Hundreds who ask for one transfer that hangs, by Transfer and by Wait, share the looks
// at it; none of them begins an execution that only finds the ID taken. When it is over
// all are told, each for its own payload.
func TestCallersOfOneIDShareTheirLooks(t *testing.T) {
	const many = 500
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	var sent traffic
	coord := b.coordinator(b.through(sent.client()))
	end := callAll(many, func(i int) (transfer.Record, error) {
		switch i % 3 {
		case 0:
			return coord.Wait(t.Context(), "t")
		case 1:
			return coord.Transfer(t.Context(), move("t", "a", "b", 60))
		}
		return coord.Transfer(t.Context(), move("t", "a", "b", 61))
	})
	require.Eventually(t, func() bool { return sent.glances.Load()+sent.more.Load() >= 5 }, time.Minute, time.Millisecond)
	assert.Less(t, sent.writes.Load(), int64(many/3/5), "each has tried to store it")
	assert.Less(t, sent.commands(), int64(many/3), "each has looked by himself")
	assert.Less(t, sent.connections.Load(), int64(12), "they hold connections")
	for _, c := range []struct {
		units int64
		want  error
	}{{60, transfer.ErrUnsettled}, {61, transfer.ErrIDConflict}} {
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := coord.Transfer(short, move("t", "a", "b", c.units))
		cancel()
		require.ErrorIs(t, err, c.want, "each has its own context, and its own answer")
	}
	b.recoverAll()
	for i, a := range end() {
		if i%3 == 2 {
			require.ErrorIs(t, a.err, transfer.ErrIDConflict)
			continue
		}
		require.NoError(t, a.err)
		require.Equal(t, transfer.StateSuccess, a.rec.State)
	}
	b.audit(initial(100, 0))
}

// Of those who wait for a transfer that has stalled one takes it over, once, for all.
func TestOneOfManyTakesOver(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	c := b.coordinator(b.db, transfer.WithStallThreshold(500*time.Millisecond))
	for _, a := range callAll(100, func(int) (transfer.Record, error) { return c.Transfer(t.Context(), move("t", "a", "b", 60)) })() {
		require.NoError(t, a.err)
		require.Equal(t, transfer.StateSuccess, a.rec.State)
		require.EqualValues(t, 2, a.rec.Epoch)
	}
	b.audit(initial(100, 0))
}

// Of those who ask at once for what waits for a worker one runs it.
func TestOneOfManyRunsWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	_, err := b.Submit(t.Context(), later("t", 60))
	require.NoError(t, err)
	var sent traffic
	c := b.coordinator(b.through(sent.client()))
	for _, a := range callAll(100, func(int) (transfer.Record, error) { return c.Transfer(t.Context(), move("t", "a", "b", 60)) })() {
		require.NoError(t, a.err)
		require.Equal(t, transfer.StateSuccess, a.rec.State)
	}
	require.Less(t, sent.writes.Load(), int64(20), "each has tried to claim it")
	b.audit(initial(100, 0))
}

// Of several with one ID and different payloads that come at the same time, those with
// the payload that is stored have its outcome, and the others ErrIDConflict.
func TestPayloadsOfOneIDRace(t *testing.T) {
	t.Parallel()
	b := newBank(t, 1000, 0)
	moved := int64(0)
	for round := range 20 {
		id := fmt.Sprint("t", round)
		answers := callAll(30, func(i int) (transfer.Record, error) {
			if i%3 == 2 {
				return b.Hold(t.Context(), move(id, "a", "b", 1), time.Hour)
			}
			return b.Transfer(t.Context(), move(id, "a", "b", int64(1+i%3)))
		})()
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		for i, a := range answers {
			mine := i%3 == 2 && rec.Hold || i%3 != 2 && !rec.Hold && rec.Legs[0].Amount.Cmp(transfer.Units(-int64(1+i%3))) == 0
			if !mine {
				require.ErrorIs(t, a.err, transfer.ErrIDConflict)
				continue
			}
			require.NoError(t, a.err)
			require.Equal(t, rec, a.rec)
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
	require.Equal(t, map[string]int64{"a": 1000 - moved, "b": moved}, b.balances())
	b.audit(initial(1000, 0))
}

// Whoever waits behind another caller of the same ID goes on when that one's context ends
// before anything was sent: the one is told so, by its own error, and the other moves the
// money. Before that a caller whose own context ends doesn't wait any longer.
func TestNextCallerGoesOn(t *testing.T) {
	b := newBank(t, 100, 0)
	net := &silence{}
	client := options.Client().SetDialer(net).SetConnectTimeout(time.Second)
	c := b.coordinator(b.through(client), transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 1}))
	_, err := c.Transfer(t.Context(), move("warm", "a", "b", 1))
	require.NoError(t, err)
	net.set(true) // the only place is taken, for as long as nobody answers
	hanging, release := context.WithCancel(t.Context())
	defer release()
	place := callAll(1, func(int) (transfer.Record, error) { return c.Transfer(hanging, move("in the way", "a", "b", 1)) })
	require.Eventually(t, func() bool { return strings.Contains(stacks(), "engine.(*Engine).Execute") }, time.Minute, time.Millisecond)

	first, leave := context.WithCancelCause(t.Context())
	leader := callAll(1, func(int) (transfer.Record, error) { return c.Transfer(first, move("t", "a", "b", 10)) })
	require.Eventually(t, func() bool { return strings.Contains(stacks(), "engine.(*gate).enter") }, time.Minute, time.Millisecond)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Transfer(short, move("t", "a", "b", 10))
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for another one's context")
	others := callAll(5, func(int) (transfer.Record, error) { return c.Transfer(t.Context(), move("t", "a", "b", 10)) })
	require.Eventually(t, func() bool { return strings.Count(stacks(), "lookout.(*Watch).Look(") == 5 }, time.Minute, time.Millisecond)
	leave(errors.New("gone"))
	told := leader()[0]
	require.ErrorIs(t, told.err, context.Canceled)
	require.NotErrorIs(t, told.err, transfer.ErrInDoubt, "nothing was sent")
	net.set(false)
	for _, a := range others() {
		require.NoError(t, a.err, "it was told what is true for another one")
		require.Equal(t, transfer.StateSuccess, a.rec.State)
	}
	for _, a := range place() {
		require.NoError(t, a.err)
	}
	b.audit(initial(100, 0))
}

func stacks() string {
	all := make([]byte, 8<<20)
	return string(all[:runtime.Stack(all, true)])
}
