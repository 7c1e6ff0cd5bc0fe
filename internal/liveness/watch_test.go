package liveness

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watched is a watch with a clock of its own, over notes that a test changes.
type watched struct {
	*Watch

	t     *testing.T
	now   time.Time
	notes map[string]Note
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, now: time.Now(), notes: map[string]Note{}}
	w.Watch = NewWatch("self", func() time.Time { return w.now })
	return w
}

// beats notes that processes live.
func (w *watched) beats(processes ...string) {
	for _, process := range processes {
		w.notes[process] = Note{Process: process, Seen: w.now}
	}
}

// look looks at all notes, after a while.
func (w *watched) look(after time.Duration) []string {
	w.t.Helper()
	w.now = w.now.Add(after)
	var notes []Note
	for _, note := range w.notes {
		note.Silent = w.now.Sub(note.Seen) >= Silence
		notes = append(notes, note)
	}
	return w.Dead(notes, w.now)
}

// untilDead looks until a process is dead, and returns how long that took.
func (w *watched) untilDead(process string) time.Duration {
	w.t.Helper()
	begun := w.now
	for range 100 {
		if dead := w.look(LookPeriod); len(dead) > 0 {
			require.Equal(w.t, []string{process}, dead)
			return w.now.Sub(begun)
		}
	}
	require.Fail(w.t, "it is never thought dead")
	return 0
}

// A process that gives no note any more is dead soon after its time is over, and one that
// does is not.
// Nobody thinks itself dead.
func TestSilenceIsDeath(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.beats("dies", "self", "late")
	for range 10 {
		w.beats("late")
		require.LessOrEqual(t, len(w.look(LookPeriod)), 1)
	}
	delete(w.notes, "late")
	require.Equal(t, []string{"dies"}, w.look(LookPeriod))

	w = newWatched(t)
	w.beats("dies")
	require.LessOrEqual(t, w.untilDead("dies"), Silence+LookPeriod)
}

// A note that was given within the time that its process asked for is enough, however
// often it is looked at.
func TestSlowBeatsAreEnough(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for range 10 {
		w.beats("slow")
		for range int((Silence - 1) / LookPeriod) {
			require.Empty(t, w.look(LookPeriod))
		}
	}
}

// Two looks are too few, however long ago the first one was.
func TestTwoLooksAreTooFew(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.beats("dead")
	w.now = w.now.Add(time.Hour)
	require.Empty(t, w.look(longestGap))
	require.Empty(t, w.look(longestGap))
	require.NotEmpty(t, w.look(longestGap))
}

// A worker that begins to look at a note that is old already looks at it several times
// before it believes it: the clock of the server may have leapt, and the next beat is on
// its way.
func TestOldNoteIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.beats("dead")
	w.now = w.now.Add(time.Hour)
	took := w.untilDead("dead")
	require.GreaterOrEqual(t, took, unchanged)
	require.LessOrEqual(t, took, time.Duration(lookedAt)*LookPeriod)

	w = newWatched(t)
	for range 50 { // a clock that is hours ahead of the notes
		w.notes["skewed"] = Note{Process: "skewed", Seen: w.now.Add(-time.Hour)}
		require.Empty(t, w.look(LookPeriod))
	}
}

// Looks that are far apart don't belong together: nobody knows what happened meanwhile.
func TestLooksBelongTogether(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.beats("dead")
	for range 10 {
		require.Empty(t, w.look(longestGap+1))
	}
	w.untilDead("dead")
}

// Looks that follow one another at once say no more than one of them.
func TestLooksTakeTime(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.beats("dead")
	w.now = w.now.Add(time.Hour)
	for range 10 {
		require.Empty(t, w.look(unchanged/20))
	}
	require.NotEmpty(t, w.look(unchanged))
}

// Where the servers, or the worker itself, were held up, nobody is thought dead for a
// while.
func TestNobodyIsDeadAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, heldUp := range map[string]func(*watched){
		"no answer":      func(w *watched) { w.HeldUp() },
		"a slow answer":  func(w *watched) { w.Asked(w.now, w.now.Add(-slowLook-1)) },
		"a late request": func(w *watched) { w.Asked(w.now.Add(-longestGap-1), w.now) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t)
			w.beats("dead")
			w.untilDead("dead")
			heldUp(w)
			require.Greater(t, w.untilDead("dead"), calm-LookPeriod)
		})
	}
	w := newWatched(t)
	w.beats("dead")
	w.untilDead("dead")
	w.Asked(w.now.Add(-longestGap), w.now)
	w.Asked(time.Time{}, w.now.Add(-slowLook))
	require.NotEmpty(t, w.look(LookPeriod), "that is not held up")
}

// Owners show the processes that they belong to, and no others.
func TestOwnersBelongToProcesses(t *testing.T) {
	t.Parallel()
	one, other := NewProcess("host-1"), NewProcess("host-1")
	require.NotEqual(t, one, other)
	require.Equal(t, one, ProcessOf(NewOwner(one)))
	w := NewWatch(one, time.Now)
	owners := []string{NewOwner(one), NewOwner(other), NewOwner(other), "host-1-ABCDEFGHIJKLMNOP", "odd", "", "-"}
	require.Equal(t, []string{other, "host-1"}, w.Processes(owners))
	for _, prefix := range Owners([]string{other}) {
		require.Contains(t, NewOwner(other), prefix)
		require.NotContains(t, fmt.Sprint(other, "0-", NewOwner(one)), prefix)
	}
}
