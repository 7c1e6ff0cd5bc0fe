package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/transition"
)

// patience is how long a busy machine may take.
const patience = 3 * time.Minute

// messages is a log handler that hands each message over with the transfer that it names.
type messages struct {
	slog.Handler
	logged chan string
}

func newMessages() messages { return messages{slog.DiscardHandler, make(chan string, 1000)} }

func (m messages) Enabled(context.Context, slog.Level) bool { return true }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "transfer" {
			text += " " + a.Value.String()
		}
		return true
	})
	m.logged <- text
	return nil
}

// within returns the next of what is handed over.
func within[T any](t *testing.T, from <-chan T) (next T) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case next = <-from:
	case <-limit.C:
		require.Fail(t, "nothing has come", "for %s", patience)
	}
	return next
}

// settings are those of an outbox that gives up after three attempts.
func settings(b *storetest.Bank, handle func(context.Context, outbox.Event) error) outbox.Settings {
	return outbox.Settings{
		Catalog: b.Store.Catalog, Queries: b.Store.Queries, Hand: outbox.NewHand(all(), time.Now),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, MaxAttempts: 3,
		Ready:  func(context.Context) error { return nil },
		Handle: handle,
	}
}

// An event whose last attempt has not come back is given up by the next worker that
// looks: the log and the observer say so, and its handler is not called. Redeliver has it
// tried from the beginning.
func TestLostAttemptIsTold(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	put(b, "lost", bson.A{event("succeeded", time.Now().Add(-time.Second), bson.NewObjectID(), 3)}, nil)
	log, told, handled := newMessages(), make(chan outbox.Attempt, 10), make(chan outbox.Event, 10)
	s := settings(b, func(_ context.Context, e outbox.Event) error { handled <- e; return nil })
	s.Log, s.Done = slog.New(log), func(a outbox.Attempt) { told <- a }
	require.NoError(t, outbox.New(s).Beside(t.Context(), func(context.Context) error {
		attempt := within(t, told)
		require.True(t, attempt.GivenUp)
		require.ErrorContains(t, attempt.Err, "has not come back")
		require.Equal(t, "lost", attempt.Transfer.ID)
		require.Equal(t, 3, attempt.Attempt)
		require.NotNil(t, attempt.Context)
		require.Equal(t, "WARN an event was given up: see Query.Undelivered and Redeliver lost", within(t, log.logged))
		require.True(t, entries(b, "lost")[0].GivenUp)
		require.Empty(t, handled)
		perform(b, transition.Redeliver("lost"))
		require.Equal(t, 1, within(t, handled).Attempt)
		require.False(t, within(t, told).GivenUp)
		return nil
	}))
	require.Empty(t, told, "it is told once")
	require.NotContains(t, stored(b, "lost"), "outbox")
}

// What keeps an event from its handler is logged with its transfer: that this can't be
// read, or that the server refuses to change it. The others are delivered.
func TestWhatIsNotDeliveredIsLogged(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	past := time.Now().Add(-time.Second)
	put(b, "garbled", bson.A{event("succeeded", past, nil, 0)}, bson.M{"legs": "none"})
	put(b, "refused", bson.A{event("succeeded", past, nil, 0)}, nil)
	put(b, "sound", bson.A{event("succeeded", past, nil, 0)}, nil)
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "transfers"},
		{Key: "validator", Value: bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "refused"}}, bson.M{"outbox.attempts": 0}}}},
	}).Err())
	log, handled := newMessages(), make(chan outbox.Event, 10)
	s := settings(b, func(_ context.Context, e outbox.Event) error { handled <- e; return nil })
	s.Log = slog.New(log)
	require.NoError(t, outbox.New(s).Beside(t.Context(), func(context.Context) error {
		require.Equal(t, "sound", within(t, handled).Transfer.ID)
		warned := []string{within(t, log.logged), within(t, log.logged)}
		require.ElementsMatch(t, []string{
			"WARN a transfer can't be read, so its events are not delivered garbled",
			"WARN the server refuses to have an event taken in hand: it is not delivered refused",
		}, warned)
		return nil
	}))
	require.Empty(t, handled)
}

// failing is a handler that fails at its first attempts, in a way for each.
func failing(_ context.Context, e outbox.Event) error {
	switch e.Attempt {
	case 1:
		return errors.New(strings.Repeat("long ", 1000))
	case 2:
		panic("the handler is broken")
	}
	return errors.New("the last one")
}

// lines is a log handler that hands each line over.
type lines struct {
	slog.Handler
	logged chan slog.Record
}

func (lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	l.logged <- r
	return nil
}

// valuesOf returns what a line says, by its keys.
func valuesOf(r slog.Record) map[string]string {
	values := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value.String()
		return true
	})
	return values
}

// Each failed attempt is logged at Info or above, with its number and its error, which is
// cut off. A panic is a warning of its own, with the stack of the handler.
func TestEachFailedAttemptIsLogged(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	past := time.Now().Add(-time.Second)
	put(b, "failing", bson.A{event("succeeded", past, nil, 0)}, nil)
	log := lines{slog.DiscardHandler, make(chan slog.Record, 100)}
	s := settings(b, failing)
	s.Log = slog.New(log)
	require.NoError(t, outbox.New(s).Beside(t.Context(), func(context.Context) error {
		for attempt := 1; attempt <= 3; attempt++ {
			line := within(t, log.logged)
			require.Equal(t, slog.LevelWarn, line.Level, line.Message)
			values := valuesOf(line)
			require.Equal(t, strconv.Itoa(attempt), values["attempt"])
			require.Less(t, len(values["cause"]), 1100)
			if attempt != 2 {
				require.NotContains(t, values, "stack")
				continue
			}
			require.Contains(t, values["cause"], "the handler is broken")
			require.Contains(t, values["stack"], "outbox_test.failing")
			require.LessOrEqual(t, len(values["stack"]), 4<<10)
		}
		put(b, "another", bson.A{event("succeeded", past, nil, 0)}, nil)
		line := within(t, log.logged)
		require.Equal(t, slog.LevelInfo, line.Level, "the minute is not over")
		require.Equal(t, "another", valuesOf(line)["transfer"])
		return nil
	}))
}

// A search that has failed for half a minute is reported, with its error, until it
// succeeds again, or the worker ends. Handlers that fail are no reason.
func TestCheck(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	var ahead atomic.Int64
	var away atomic.Bool
	errAway := errors.New("the server is away")
	handled := make(chan outbox.Event, 10)
	s := settings(b, func(_ context.Context, e outbox.Event) error { handled <- e; return errAway })
	s.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s.Ready = func(context.Context) error {
		if away.Load() {
			return errAway
		}
		return nil
	}
	away.Store(true)
	o := outbox.New(s)
	require.NoError(t, o.Check(), "no worker was started")
	require.NoError(t, o.Beside(t.Context(), func(context.Context) error {
		require.NoError(t, o.Check(), "it has just begun")
		ahead.Store(int64(time.Hour))
		require.Eventually(t, func() bool { return errors.Is(o.Check(), errAway) }, patience, 10*time.Millisecond)
		require.ErrorContains(t, o.Check(), "undelivered events")
		away.Store(false)
		put(b, "failing", bson.A{event("succeeded", time.Now().Add(-time.Second), nil, 0)}, nil)
		require.Equal(t, "failing", within(t, handled).Transfer.ID)
		require.Eventually(t, func() bool { return o.Check() == nil }, patience, time.Millisecond)
		away.Store(true)
		require.Eventually(t, func() bool {
			ahead.Add(int64(time.Hour)) // a search may be under way that succeeds
			return o.Check() != nil
		}, patience, 10*time.Millisecond)
		return nil
	}))
	require.Eventually(t, func() bool { return o.Check() == nil }, patience, time.Millisecond, "it has ended")
}
