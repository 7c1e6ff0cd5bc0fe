package liveness

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// eventually is longer than anything takes here on a busy machine.
const eventually = time.Minute

// living is the pulse of a process that is busy when a test says so.
type living struct {
	*Pulse

	t     *testing.T
	notes *Notes
	db    *mongo.Database
	busy  atomic.Bool
}

func newLiving(t *testing.T) *living {
	t.Helper()
	db := mongotest.Database(t)
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")}, Now: time.Now,
	})
	require.NoError(t, err)
	l := &living{t: t, db: db, notes: NewNotes(catalog)}
	l.Pulse = NewPulse(l.notes, NewProcess("p"), l.busy.Load, time.Now, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		l.Close(now, false)
	})
	return l
}

// latest returns the process's note, and whether there is one.
// A busy server is asked again.
func (l *living) latest() (Note, bool) {
	l.t.Helper()
	begun := time.Now()
	found, err := l.notes.Read(l.t.Context(), []string{l.Process(), "another"})
	for err != nil && time.Since(begun) < eventually {
		found, err = l.notes.Read(l.t.Context(), []string{l.Process(), "another"})
	}
	require.NoError(l.t, err)
	if len(found) == 0 {
		return Note{}, false
	}
	require.Equal(l.t, l.Process(), found[0].Process)
	return found[0], true
}

// The first note is there before the first claim, and nobody who comes later waits for
// another one.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	_, noted := l.latest()
	require.False(t, noted)
	l.Announce(t.Context())
	first, noted := l.latest()
	require.True(t, noted)
	require.False(t, first.Silent)
	l.Announce(t.Context())
	second, _ := l.latest()
	require.Equal(t, first, second)
}

// A process gives notes as long as it has something in progress, and none while it
// hasn't: its note grows old.
func TestBeats(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	l.Announce(t.Context())
	for range 2 {
		first, _ := l.latest()
		l.busy.Store(true)
		l.Begin()
		l.Begin()
		for range 3 { // it goes on
			require.Eventually(t, func() bool {
				note, _ := l.latest()
				return note.Seen.After(first.Seen)
			}, eventually, 10*time.Millisecond)
			first, _ = l.latest()
		}
		l.busy.Store(false)
		require.Eventually(t, func() bool {
			note, _ := l.latest()
			return note.Silent
		}, eventually, 10*time.Millisecond)
		l.mu.Lock()
		require.False(t, l.beating, "nobody waits for its next beat")
		l.mu.Unlock()
	}
}

// What has begun while a process was about to rest keeps it going.
func TestBeginsWhileItRests(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	l.beating = true
	idle := func() bool {
		l.Begin()
		return false
	}
	l.Pulse.busy = idle
	require.False(t, l.rests())
	l.Pulse.busy = func() bool { return false }
	require.True(t, l.rests())
	require.False(t, l.beating)
}

// A process that is slow to write its notes asks for more time, and for less only little
// by little.
func TestSlowProcessAsksForTime(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	now := time.Now()
	l.now = func() time.Time { return now }
	asked := func() time.Duration {
		var note struct{ Silence int64 }
		require.NoError(t, l.db.Collection("transfers.processes").FindOne(t.Context(), bson.D{}).Decode(&note))
		return time.Duration(note.Silence) * time.Millisecond
	}
	l.note(now)
	require.Equal(t, Silence, asked())
	l.note(now.Add(-time.Second)) // it is a second late
	l.note(now)
	require.Equal(t, latenessFactor*time.Second, asked())
	l.note(now)
	require.Equal(t, latenessFactor*time.Second*3/4, asked())
	l.note(now.Add(-time.Hour))
	l.note(now)
	require.Equal(t, longestSilence, asked())
	for range 20 {
		l.note(now)
	}
	require.Equal(t, Silence, asked())
}

// A process that ends well removes its note. One that leaves something behind doesn't:
// the note grows old, and others take over what is left.
func TestNoteAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct{ busy, left bool }{
		"ended well": {}, "something is in progress": {busy: true}, "something is left": {left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiving(t)
			l.Announce(t.Context())
			l.busy.Store(end.busy)
			l.Close(t.Context(), end.left)
			_, noted := l.latest()
			require.Equal(t, end.busy || end.left, noted)
			l.Begin()
			l.Announce(t.Context())
			require.False(t, l.beating, "it is over")
		})
	}
}

// Close waits no longer than its context, whatever hangs.
// Another one does what the first had no time for.
func TestCloseHeedsItsContext(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	l.Announce(t.Context())
	hangs := make(chan struct{})
	l.all.Go(func() { <-hangs })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	l.Close(ctx, false)
	_, noted := l.latest()
	require.True(t, noted)
	close(hangs)
	l.Close(t.Context(), false)
	_, noted = l.latest()
	require.False(t, noted)
}

// A log handler may call what waits for the pulse.
func TestLogHandlerMayCallBack(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	handler := storetest.NewWithoutLock(t, &l.mu)
	l.log = slog.New(handler)
	denied := wire.ServerErrorOf(mongo.CommandError{Code: wire.CodeUnauthorized}, "update", "db.transfers.processes")
	l.written(time.Now(), denied)
	l.written(time.Now(), denied)
	require.Equal(t, 1, handler.Records(), "it warns once")
	l.written(time.Now(), io.EOF)
	require.Equal(t, 2, handler.Records())
}

// A process that begins to work again renews a note that is so old that others may have
// removed it. One that is younger still serves.
func TestStaleNoteIsRenewed(t *testing.T) {
	t.Parallel()
	for age, renewed := range map[time.Duration]bool{staleNote: false, staleNote + 1: true} {
		t.Run(age.String(), func(t *testing.T) {
			t.Parallel()
			l := newLiving(t)
			l.Announce(t.Context())
			require.NoError(t, l.notes.Remove(t.Context(), l.Process()))
			later := time.Now().Add(age)
			l.mu.Lock()
			l.now, l.noted = func() time.Time { return later }, later.Add(-age)
			l.mu.Unlock()
			l.Begin() // nothing is in progress at the next beat, which writes no note
			require.Eventually(t, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return !l.beating
			}, eventually, time.Millisecond)
			_, noted := l.latest()
			require.Equal(t, renewed, noted)
		})
	}
}

// warned counts the warnings.
type warned struct {
	slog.Handler
	count *int
}

// Enabled implements slog.Handler.
func (w warned) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (w warned) Handle(context.Context, slog.Record) error {
	*w.count++
	return nil
}

// That a process may not write notes is said once, and again only if it could meanwhile.
// It writes none for a while.
func TestRefusalIsSaidOnce(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	n, now := 0, time.Now()
	l.log = slog.New(warned{slog.DiscardHandler, &n})
	l.now = func() time.Time { return now }
	refusal := wire.ServerErrorOf(mongo.CommandError{Code: wire.CodeUnauthorized}, "update", "bank.transfers.processes")
	for said := 1; said <= 2; said++ {
		for range 3 {
			l.written(now, refusal)
			require.Equal(t, said, n)
		}
		l.note(now)
		_, noted := l.latest()
		require.False(t, noted, "it rests")
		now = now.Add(refusedRest)
		l.note(now)
		_, noted = l.latest()
		require.True(t, noted)
		require.NoError(t, l.notes.Remove(t.Context(), l.Process()))
	}
}

// Notes that are of no use any more are removed, and no others.
// What somebody else has stored there is no note.
func TestOldNotesAreRemoved(t *testing.T) {
	t.Parallel()
	l := newLiving(t)
	l.Announce(t.Context())
	notes := l.db.Collection("transfers.processes")
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	_, err := notes.InsertMany(t.Context(), []any{
		bson.M{"_id": "dead", "seen": ago(keepNotes + time.Hour), "silence": int64(1)},
		bson.M{"_id": "another", "seen": ago(keepNotes - time.Hour), "silence": int64(1)},
		bson.M{"_id": "odd", "seen": "now", "silence": int64(1)},
		bson.M{"_id": "odder", "seen": ago(0), "silence": "long"},
	})
	require.NoError(t, err)
	require.NoError(t, l.notes.RemoveOld(t.Context()))
	n, err := notes.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "dead"}})
	require.NoError(t, err)
	require.Zero(t, n)
	found, err := l.notes.Read(t.Context(), []string{l.Process(), "dead", "another", "odd", "odder"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	n, err = notes.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
}
