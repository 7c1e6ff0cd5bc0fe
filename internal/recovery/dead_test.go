package recovery

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const couldNot = "a stalled transfer could not be finished"

// leaveBehind plants transfers of a process that has died.
func (e *employed) leaveBehind(transfers map[string]bson.M) {
	e.b.T.Helper()
	process := liveness.NewProcess("dead")
	e.b.PutIn("transfers.processes", bson.M{"_id": process, "seen": time.Now().Add(-time.Hour), "silence": int64(1)})
	for id, changes := range transfers {
		owned := bson.M{"owner": liveness.NewOwner(process)}
		for field, value := range changes {
			owned[field] = value
		}
		e.plant(id, owned)
	}
}

// lookFor has an undertaker look again and again, for a while.
func (e *employed) lookFor(u *undertaker, while time.Duration) {
	e.b.T.Helper()
	for range int(while / liveness.LookPeriod) {
		e.pass(liveness.LookPeriod)
		_, err := u.look(e.b.T.Context())
		require.NoError(e.b.T, err)
		e.all.Wait()
	}
}

// What a dead process has left is taken over and reported.
// What can't be finished is tried once, and left to the sweep, which reports it once per
// stall threshold.
func TestUnableIsLeftToTheSweep(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	finish := e.Finish
	e.Finish = func(ctx context.Context, found document.Transfer, start protocol.Start, quiet time.Duration) Result {
		result := finish(ctx, found, start, quiet)
		if found.ID != "fine" {
			return result
		}
		_, err := e.b.DB.Collection("transfers").DeleteOne(ctx, bson.M{"_id": "fine"})
		return Result{Result: engine.Result{Outcome: protocol.Finished, State: protocol.Success}, Err: err}
	}
	e.leaveBehind(map[string]bson.M{"fine": nil, "unregistered": nil, "garbled": {"metadata": "x"}})
	u := &undertaker{worker: e.worker}
	e.lookFor(u, 10*time.Second)
	require.ElementsMatch(t, []string{"fine", "unregistered"}, e.finished)
	require.Equal(t, []Report{{Found: 3, Succeeded: 1, Stuck: 2}}, e.told)
	require.Equal(t, 2, e.logged(slog.LevelDebug, couldNot))
	require.Zero(t, e.logged(slog.LevelWarn, couldNot))
	require.Equal(t, 1, e.logged(slog.LevelInfo, "a process has died, or looks so: what it has left is taken over"))

	_, err := e.recover(t.Context())
	require.NoError(t, err)
	e.all.Wait()
	require.Equal(t, Report{Found: 2, Stuck: 2}, e.told[1])
	require.Equal(t, 2, e.logged(slog.LevelWarn, couldNot))

	e.pass(2 * e.sweepPeriod())
	e.lookFor(u, 10*time.Second)
	require.Len(t, e.finished, 4, "it is tried again")
	require.Len(t, e.told, 2, "and not told")
}

// A hold that has expired and can't be finished is left to the sweep as well.
func TestUnableHoldIsLeftToTheSweep(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.plant("t", bson.M{"hold": true, "held": true, "expiresAt": time.Now().Add(-time.Minute)})
	for range 3 {
		_, err := e.expire(t.Context())
		require.NoError(t, err)
		e.all.Wait()
	}
	require.Equal(t, []string{"t"}, e.finished)
	require.Empty(t, e.told)
	_, err := e.recover(t.Context())
	require.NoError(t, err)
	e.all.Wait()
	require.Equal(t, []string{"t", "t"}, e.finished)
	require.Equal(t, []Report{{Found: 1, Stuck: 1}}, e.told)
}

// Looks go on with what lacks a right, or hangs: that may be over any moment.
func TestLooksComeBackToWhatMayGoOn(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"refused": true, "hanging": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEmployed(t)
			e.Denied = func(err error) bool { return err != nil && refused }
			finish := e.Finish
			e.Finish = func(ctx context.Context, found document.Transfer, start protocol.Start, quiet time.Duration) Result {
				result := finish(ctx, found, start, quiet)
				result.Unanswered = true
				return result
			}
			e.leaveBehind(map[string]bson.M{"t": nil})
			e.lookFor(&undertaker{worker: e.worker}, 10*time.Second)
			require.Greater(t, len(e.finished), 3)
			require.Empty(t, e.told)
			require.Zero(t, e.logged(slog.LevelWarn, couldNot))
		})
	}
}

// A look that takes long is followed by a longer rest, whether it has found anybody or
// not.
func TestLongLooksRest(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.step = 20 * time.Millisecond
	u := &undertaker{worker: e.worker}
	requireRest := func() {
		rest, err := u.look(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, rest, bellFactor*e.step)
		require.LessOrEqual(t, rest, longestPause)
	}
	requireRest()
	e.leaveBehind(map[string]bson.M{"t": nil})
	e.lookFor(u, 10*time.Second)
	require.NotEmpty(t, u.dead)
	requireRest()
	require.Equal(t, longestPause, restAfter(time.Hour))
}

// That the notes may not be read is said once, and again only if they could be read
// meanwhile.
func TestBlindnessIsSaidOnce(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.Denied = func(err error) bool { return err != nil }
	u := &undertaker{worker: e.worker}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want := 1; want <= 2; want++ {
		for range 3 {
			rest, err := u.look(ended)
			require.NoError(t, err)
			require.Equal(t, blindPause, rest)
		}
		const message = "notes of other processes may not be read: what dead ones leave is taken over after the stall threshold"
		require.Equal(t, want, e.logged(slog.LevelWarn, message))
		_, err := u.look(t.Context())
		require.NoError(t, err)
	}
}
