package transfertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

var errBroken = errors.New("the consumer is broken")

// consumer is a handler of events, which writes down what it gets.
type consumer struct {
	mu     sync.Mutex
	world  *world
	broken bool
}

func (c *consumer) handle(_ context.Context, e transfer.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.At, e.Record = time.Time{}, plain(e.Record)
	c.world.note("event "+e.ID, e, nil)
	if c.broken {
		return errBroken
	}
	return nil
}

func (c *consumer) breaks(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = is
}

// A fake delivers the same events as a coordinator on a server, and tries them as often.
func TestEventsAgree(t *testing.T) {
	t.Parallel()
	var onBoth [2]consumer
	for i := range onBoth {
		c := &onBoth[i]
		h := transfer.EventHandler{Handle: c.handle, MaxAttempts: 2}
		if i == 0 {
			c.world = onServer(t, transfer.WithEvents(h))
		} else {
			c.world = inMemoryWith(t, transfertest.WithEvents(h), transfertest.WithOptions(options(nil)...))
		}
		c.world.openBank()
		c.world.pass(0)
		events(c)
		c.world.noteBank()
	}
	server, memory := onBoth[0].world, onBoth[1].world
	var delivered []string
	for _, e := range memory.log {
		if event, is := e.answer.(transfer.Event); is {
			delivered = append(delivered, event.ID)
		}
	}
	require.Equal(t, []string{
		"pay:succeeded", "broke:failed", "room:held", "room:succeeded", "hall:held", "hall:failed", "later:succeeded",
		"late:succeeded", "late:succeeded", "late:succeeded",
	}, delivered)
	requireAgreement(t, server, memory)
}

func events(c *consumer) {
	w := c.world
	step := func(do func()) {
		do()
		w.pass(0)
	}
	step(func() { w.transfer(move("pay", "alice", "bob", 10)) })
	step(func() { w.transfer(move("broke", "carol", "bob", 10)) })
	step(func() { w.hold(move("room", "alice", "bob", 20), time.Hour) })
	step(func() { w.post("room") })
	step(func() { w.hold(move("hall", "alice", "bob", 20), 4*time.Second) }) // on a busy machine, too
	w.pass(4 * time.Second)
	step(func() { w.submit(move("later", "alice", "bob", 1)) })
	w.get("later")
	c.breaks(true)
	step(func() { w.transfer(move("late", "alice", "bob", 2)) })
	w.get("late")
	w.pass(1100 * time.Millisecond)
	w.get("late")
	w.list(transfer.Query{Undelivered: true})
	w.stats()
	c.breaks(false)
	w.pass(0)
	step(func() { w.note("Redeliver", nil, w.verbs.Redeliver(w.t.Context(), "late")) })
	w.get("late")
	w.list(transfer.Query{Undelivered: true})
}

// Advance delivers what was moved before, also where the coordinator answers before it is
// done.
func TestEventsAfterEarlyAnswers(t *testing.T) {
	t.Parallel()
	for _, at := range []transfer.ReturnAt{transfer.AtCommit, transfer.AtSettled, transfer.AtSuccess} {
		got := make(chan string, 10)
		handle := func(_ context.Context, e transfer.Event) error { got <- e.ID; return nil }
		f := transfertest.NewFake(t, transfertest.WithEvents(transfer.EventHandler{Handle: handle}),
			transfertest.WithOptions(transfer.WithReturnAt(at)))
		_, err := f.OpenAccount(t.Context(), transfer.Account{ID: "world", NoFloor: true})
		require.NoError(t, err)
		_, err = f.OpenAccount(t.Context(), transfer.Account{ID: "alice"})
		require.NoError(t, err)
		for _, advance := range []time.Duration{0, time.Hour} {
			id := "before " + advance.String()
			_, err = f.Transfer(t.Context(), move(id, "world", "alice", 1))
			require.NoError(t, err)
			f.Advance(advance)
			require.Len(t, got, 1, "%v, %s", at, id)
			require.Equal(t, id+":succeeded", <-got)
		}
	}
}

// A transfer comes to its end also where it is to be purged, and the event of a hold may
// still wait.
func TestEventsAndRetention(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	f := transfertest.NewFake(t, transfertest.WithOptions(append(options(nil), transfer.WithRetention(24*time.Hour))...),
		transfertest.WithEvents(transfer.EventHandler{
			Kinds:  []transfer.EventKind{transfer.EventHeld},
			Handle: func(_ context.Context, e transfer.Event) error { got <- e.ID; return nil },
		}))
	for _, id := range []string{"alice", "bob"} {
		_, err := f.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: units(100)})
		require.NoError(t, err)
	}
	_, err := f.Hold(t.Context(), move("room", "alice", "bob", 1), time.Hour)
	require.NoError(t, err)
	rec, err := f.Post(t.Context(), "room")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	f.Advance(0)
	require.Equal(t, "room:held", <-got)
	f.Advance(48 * time.Hour)
	_, err = f.Get(t.Context(), "room")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
}

// Where nobody delivers, events wait, and a fake's worker does not wait for them.
func TestEventsWithoutHandler(t *testing.T) {
	t.Parallel()
	f := transfertest.NewFake(t, transfertest.WithEvents(transfer.EventHandler{}), transfertest.WithOptions(options(nil)...))
	for _, id := range []string{"alice", "bob"} {
		_, err := f.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: units(100)})
		require.NoError(t, err)
	}
	_, err := f.Transfer(t.Context(), move("pay", "alice", "bob", 1))
	require.NoError(t, err)
	f.Advance(time.Second)
	rec, err := f.Get(t.Context(), "pay")
	require.NoError(t, err)
	require.Len(t, rec.Undelivered, 1)
}

// Events that a fake doesn't know of are refused: its worker would not wait for them.
func TestEventsAmongOptions(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.run(func(tb testing.TB) {
		transfertest.NewFake(tb, transfertest.WithOptions(transfer.WithEvents(transfer.EventHandler{})))
		require.Fail(t, "the test goes on")
	})
	require.Equal(t, []string{"transfertest: transfer.WithEvents is no option for WithOptions: use transfertest.WithEvents"}, r.errors)
}
