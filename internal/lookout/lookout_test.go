package lookout

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/queries"
)

// idle returns a lookout without a server, and a clock that stands still. It sends
// nothing.
func idle() (l *Lookout, now time.Time) {
	now = time.Now()
	l = New(nil, slog.New(slog.DiscardHandler), func() time.Time { return now })
	l.keeping, l.readers = true, 1 // as if both were under way
	l.stream.retry = now.Add(time.Hour)
	return l, now
}

func sighting(mark queries.Fingerprint) queries.Snapshot {
	return queries.Snapshot{Transfer: document.Transfer{ID: "t"}, Fingerprint: mark}
}

// seen shows a target what a look has found that begins now.
func (l *Lookout) seen(t *target, found queries.Snapshot, err error) {
	k := l.begin()
	l.show(t, found, err, k)
	l.plan(t)
}

// A target is glanced at seldom only once a look at it has begun while a stream was live:
// of what has happened before that, the stream says nothing.
func TestStreamIsReliedOnAfterALook(t *testing.T) {
	l, now := idle()
	w := l.Watch("t")
	before := l.begin()
	l.live(true)
	require.False(t, w.target.due.After(now.Add(period)), "it is not looked at when the stream begins")
	l.show(w.target, sighting("a"), nil, before)
	w.target.glances = doublings
	l.plan(w.target)
	require.False(t, w.target.due.After(now.Add(2*period)), "the look had begun before the stream")
	l.seen(w.target, sighting("a"), nil)
	require.False(t, w.target.due.Before(now.Add(watchedPeriod/2)))
	l.live(false)
	require.False(t, w.target.due.After(now.Add(period)), "nobody tells what happens")
	l.live(true)
	require.False(t, w.target.due.After(now.Add(period)), "what has happened between two streams is told by none")
}

// Of two looks that overlap, the one that began later counts; who waits is told when
// something else is seen, and only then.
func TestLaterLookCounts(t *testing.T) {
	l, _ := idle()
	w := l.Watch("t")
	older, newer := l.begin(), l.begin()
	l.show(w.target, sighting("new"), nil, newer)
	first := w.Latest()
	l.show(w.target, sighting("old"), nil, older)
	require.Same(t, first, w.Latest())
	replaced := func(s *Sight) bool {
		select {
		case <-s.Replaced:
			return true
		default:
			return false
		}
	}
	l.seen(w.target, sighting("new"), nil)
	require.False(t, replaced(first), "nothing has happened")
	l.seen(w.target, queries.Snapshot{}, errors.New("away"))
	require.True(t, replaced(first))
	away := w.Latest()
	require.Error(t, away.Err)
	l.seen(w.target, queries.Snapshot{}, errors.New("away"))
	require.True(t, replaced(away), "each failure is told: it may be the last that somebody waits for")
	away = w.Latest()
	l.seen(w.target, sighting("new"), nil)
	require.True(t, replaced(away))
}

// Who asks is not told by a read that has begun before.
func TestLookBeginsAfterItWasAskedFor(t *testing.T) {
	l, _ := idle()
	w := l.Watch("t")
	first := l.ask(w.target)
	require.Equal(t, first, l.ask(w.target), "both are served by the read to come")
	k := l.take()
	require.Len(t, k.batch, 1)
	second := l.ask(w.target)
	l.deliver(k, map[string]queries.Snapshot{"t": sighting("a")}, nil, time.Millisecond)
	select {
	case <-first:
	default:
		require.Fail(t, "the read was for the first")
	}
	select {
	case <-second:
		require.Fail(t, "the second was told what was read before it has asked")
	default:
	}
}

// Commands carry no more than they may, whoever has left is not looked for, and nothing
// is kept of him.
func TestLooksAreBounded(t *testing.T) {
	l, _ := idle()
	var all []*Watch
	for i := range 3 * maxGlance {
		w := l.Watch(string(rune('a'+i%26)) + time.Duration(i).String())
		l.ask(w.target)
		all = append(all, w)
	}
	require.Len(t, l.take().batch, maxRead)
	var began time.Time
	l.now = func() time.Time { return time.Now().Add(time.Hour) }
	batch, _, over := l.next(&began, time.Time{})
	require.False(t, over)
	require.Len(t, batch, maxGlance)
	for _, w := range all {
		w.End()
	}
	require.Empty(t, l.take().batch)
	require.Empty(t, l.targets)
	require.Empty(t, l.rounds)
	require.Empty(t, l.asked)
	_, _, over = l.next(&began, time.Time{})
	require.False(t, over, "the next one may come soon")
	began = l.now().Add(-2 * linger)
	_, _, over = l.next(&began, time.Time{})
	require.True(t, over)
}

// The pauses between glances are in proportion to what these cost, and short where they
// cost nothing.
func TestPauses(t *testing.T) {
	require.Equal(t, 20*time.Millisecond, pauseAfter(maxGlance, time.Millisecond))
	require.Equal(t, time.Second, pauseAfter(maxGlance, time.Second))
	require.Equal(t, period, pauseAfter(1, time.Second))
}
