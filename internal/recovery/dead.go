package recovery

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// blindPause is how long a worker that may not read the notes of other processes does
	// not try again.
	blindPause = time.Minute
	// maxQuiet is how many transfers that nobody has touched for a while a worker goes
	// through at one look, to find the processes that they belong to.
	maxQuiet = 20_000
	// tidyPeriod is the time between two removals of notes that are of no use any more.
	tidyPeriod = time.Hour
)

// undertaker takes over what dead processes have left, before it has stalled.
// It belongs to one goroutine.
type undertaker struct {
	*worker
	blind bool   // it may not read the notes, and has said so
	dead  string // those that were dead at the latest look, and were logged
}

// look looks at the notes of the processes whose transfers nobody has touched for a
// while, and takes over those of the dead.
func (u *undertaker) look(ctx context.Context) (rest time.Duration, err error) {
	begun := u.Now()
	dead, err := u.findDead(ctx)
	if u.Denied(err) {
		if !u.blind {
			u.blind = true
			u.Log.Warn("notes of other processes may not be read: what dead ones leave is taken over after the stall threshold",
				slog.Any(words.KeyCause, err))
		}
		return blindPause, nil
	}
	if err != nil {
		u.watch.HeldUp()
		return 0, u.loseIfDisconnected(err)
	}
	u.blind = false
	if len(dead) == 0 {
		u.dead = ""
		return restAfter(u.Now().Sub(begun)), nil
	}
	u.announce(dead)
	s := u.newLook()
	s.still = liveness.Silence
	left := func(without ...queries.Route) iter.Seq2[document.Transfer, error] {
		return u.Queries.Abandoned(ctx, liveness.Owners(dead), s.still, without...)
	}
	err = s.recoverEach(ctx, left, s.TakeOver)
	rest = max(s.rest, restAfter(u.Now().Sub(begun)))
	u.leave(s)
	return rest, u.loseIfDisconnected(err)
}

// restAfter is the pause after a look that took so long.
// Where much is left, the server has gone through all of that.
func restAfter(took time.Duration) time.Duration { return min(bellFactor*took, longestPause) }

// findDead returns the dead among the processes whose transfers nobody has touched for a
// while.
func (u *undertaker) findDead(ctx context.Context) ([]string, error) {
	begun := u.Now()
	owners, err := u.Queries.QuietOwners(ctx, liveness.Quiet, maxQuiet)
	if err != nil {
		return nil, err
	}
	processes := u.watch.Processes(owners)
	if len(processes) == 0 {
		return nil, nil
	}
	notes, err := u.Notes.Read(ctx, processes)
	if err != nil {
		return nil, err
	}
	u.watch.Asked(time.Time{}, begun)
	return u.watch.Dead(notes, begun), nil
}

// announce logs which processes are dead, unless they were dead a moment ago.
func (u *undertaker) announce(dead []string) {
	all := strings.Join(dead, " ")
	if all == u.dead {
		return
	}
	u.dead = all
	for _, process := range dead {
		u.Log.Info("a process has died, or looks so: what it has left is taken over",
			slog.String(words.KeyProcess, words.Clip(process)))
	}
}

// tidy removes the notes of processes that died long ago.
func (w *worker) tidy(ctx context.Context) (time.Duration, error) {
	err := w.Notes.RemoveOld(ctx)
	if w.Denied(err) {
		return tidyPeriod, nil
	}
	return 0, err
}
