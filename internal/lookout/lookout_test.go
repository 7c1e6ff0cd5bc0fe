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

// idleLookout returns a lookout without a server, which sends nothing, and a clock that
// stands still.
func idleLookout() (l *Lookout, now time.Time) {
	now = time.Now()
	l = New(nil, slog.New(slog.DiscardHandler), func() time.Time { return now })
	l.polling, l.readersInTime = true, 1 // as if both goroutines ran
	l.stream.retryAt = now.Add(time.Hour)
	return l, now
}

func found(mark queries.Fingerprint) queries.Snapshot {
	return queries.Snapshot{Transfer: document.Transfer{ID: "t"}, Fingerprint: mark}
}

// readNow updates a target with what a read found that begins now.
func (l *Lookout) readNow(t *target, found queries.Snapshot, err error) {
	r := l.beginRead()
	l.update(t, found, err, r)
	l.scheduleGlance(t)
}

// Glances at a target become rare only once a read of it has begun while a stream was
// live: the stream shows nothing of what happened before that.
func TestStreamIsReliedOnAfterARead(t *testing.T) {
	l, now := idleLookout()
	w := l.Watch("t")
	before := l.beginRead()
	l.setStreamLive(true)
	require.False(t, w.target.due.After(now.Add(glancePeriod)), "no glance is due when the stream begins")
	l.update(w.target, found("a"), nil, before)
	w.target.glances = periodDoublings
	l.scheduleGlance(w.target)
	require.False(t, w.target.due.After(now.Add(2*glancePeriod)), "the read began before the stream")
	l.readNow(w.target, found("a"), nil)
	require.False(t, w.target.due.Before(now.Add(streamedGlancePeriod/2)))
	l.setStreamLive(false)
	require.False(t, w.target.due.After(now.Add(glancePeriod)), "no stream shows what happens")
	l.setStreamLive(true)
	require.False(t, w.target.due.After(now.Add(glancePeriod)), "neither stream shows what happened between them")
}

// When two reads overlap, the one that began later counts.
// Callers are notified when something else is found, and only then.
func TestLaterReadCounts(t *testing.T) {
	l, _ := idleLookout()
	w := l.Watch("t")
	older, newer := l.beginRead(), l.beginRead()
	l.update(w.target, found("new"), nil, newer)
	first := w.Latest()
	l.update(w.target, found("old"), nil, older)
	require.Same(t, first, w.Latest())
	replaced := func(s *Sight) bool {
		select {
		case <-s.Replaced:
			return true
		default:
			return false
		}
	}
	l.readNow(w.target, found("new"), nil)
	require.False(t, replaced(first), "nothing has happened")
	l.readNow(w.target, queries.Snapshot{}, errors.New("away"))
	require.True(t, replaced(first))
	away := w.Latest()
	require.Error(t, away.Err)
	l.readNow(w.target, queries.Snapshot{}, errors.New("away"))
	require.True(t, replaced(away), "callers are notified of each failure: it may be the last thing they wait for")
	away = w.Latest()
	l.readNow(w.target, found("new"), nil)
	require.True(t, replaced(away))
}

// A read that began before a caller asked does not answer that caller.
func TestReadBeginsAfterItWasRequested(t *testing.T) {
	l, _ := idleLookout()
	w := l.Watch("t")
	first := l.requestRead(w.target)
	require.Equal(t, first, l.requestRead(w.target), "both are served by the read to come")
	r := l.takeRead()
	require.Len(t, r.batch, 1)
	second := l.requestRead(w.target)
	l.deliver(r, map[string]queries.Snapshot{"t": found("a")}, nil, time.Millisecond)
	select {
	case <-first:
	default:
		require.Fail(t, "the read was for the first caller")
	}
	select {
	case <-second:
		require.Fail(t, "the second got what was read before it asked")
	default:
	}
}

// Commands carry no more than their limit.
// A transfer that nobody waits for is not read, and nothing is kept of it.
func TestReadsAreBounded(t *testing.T) {
	l, _ := idleLookout()
	var all []*Watch
	for i := range 3 * maxGlanced {
		w := l.Watch(string(rune('a'+i%26)) + time.Duration(i).String())
		l.requestRead(w.target)
		all = append(all, w)
	}
	require.Len(t, l.takeRead().batch, maxRead)
	l.now = func() time.Time { return time.Now().Add(time.Hour) }
	batch, _, over := l.nextBatch(time.Time{})
	require.False(t, over)
	require.Len(t, batch, maxGlanced)
	for _, w := range all {
		w.End()
	}
	require.Empty(t, l.takeRead().batch)
	require.Empty(t, l.targets)
	require.Empty(t, l.schedule)
	require.Empty(t, l.readQueue)
	_, _, over = l.nextBatch(time.Time{})
	require.False(t, over, "the next caller may come soon")
	l.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	_, _, over = l.nextBatch(time.Time{})
	require.True(t, over, "nobody came")
}

// The pauses between glances are in proportion to their cost, and short for cheap ones.
func TestPauses(t *testing.T) {
	require.Equal(t, 20*time.Millisecond, pauseAfterGlance(maxGlanced, time.Millisecond))
	require.Equal(t, time.Second, pauseAfterGlance(maxGlanced, time.Second))
	require.Equal(t, glancePeriod, pauseAfterGlance(1, time.Second))
}
