package recovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// eventually is longer than anything takes here on a busy machine.
const eventually = time.Minute

// employed is a worker with a server, a clock that a test sets, and records of what it
// logs, tells and does.
// It brings no transfer to its end unless a test says how.
type employed struct {
	*worker
	b *storetest.Bank

	mu       sync.Mutex
	now      time.Time
	step     time.Duration  // how far the clock goes each time it is read
	lines    map[string]int // by level and message
	told     []Report
	run      []string // the IDs of submitted transfers, and of those that were to be finished
	finished []string
}

func newEmployed(t *testing.T) *employed {
	t.Helper()
	e := &employed{b: storetest.New(t), now: time.Now(), lines: map[string]int{}}
	log := slog.New(recorder{slog.DiscardHandler, e})
	clock := func() time.Time {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.now = e.now.Add(e.step)
		return e.now
	}
	settings := &Settings{
		Queries:    e.b.Store.Queries,
		Engine:     engine.New(e.b.Store.Store, log, time.Now, engine.Limits{MaxBatch: 512, MaxInFlight: 2, MaxPending: 2048}),
		Notes:      liveness.NewNotes(e.b.Store.Catalog),
		Process:    liveness.NewProcess("worker"),
		Health:     NewHealth(clock),
		Log:        log,
		Now:        clock,
		Threshold:  30 * time.Second,
		MaxPending: 2048,
		ErrClosed:  errClosed,
		Swept:      func(r Report, _ time.Duration) { e.record(func() { e.told = append(e.told, r) }) },
		Ready:      func(context.Context) error { return nil },
		Permits:    func(context.Context) error { return nil },
		Denied:     func(error) bool { return false },
		Named:      func(err error) error { return err },
		Finish: func(_ context.Context, t document.Transfer, _ protocol.Start, _ time.Duration) Result {
			e.record(func() { e.finished = append(e.finished, t.ID) })
			return Result{Err: errors.New("it is not registered here")}
		},
		Run: func(_ context.Context, t document.Transfer) (Ending, error) {
			e.record(func() { e.run = append(e.run, t.ID) })
			return Inconclusive, nil
		},
	}
	e.worker = newWorker(settings, settings.Health.begin(), func(error) {})
	return e
}

func (e *employed) record(what func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what()
}

// pass lets time pass.
func (e *employed) pass(d time.Duration) { e.record(func() { e.now = e.now.Add(d) }) }

// logged returns how often a line was logged.
func (e *employed) logged(level slog.Level, message string) (n int) {
	e.record(func() { n = e.lines[level.String()+" "+message] })
	return n
}

// plant stores a transfer that nobody has touched for a minute, with changes.
func (e *employed) plant(id string, changes bson.M) {
	e.b.T.Helper()
	ago := time.Now().Add(-time.Minute)
	t := bson.M{
		"_id": id, "state": "Preparing", "open": true, "epoch": int64(1), "createdAt": ago, "lastModified": ago, "legs": bson.A{},
	}
	for field, value := range changes {
		t[field] = value
	}
	e.b.PutIn("transfers", t)
}

// recorder records what is logged.
type recorder struct {
	slog.Handler
	e *employed
}

// Enabled implements slog.Handler.
func (r recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r recorder) Handle(_ context.Context, line slog.Record) error {
	r.e.record(func() { r.e.lines[line.Level.String()+" "+line.Message]++ })
	return nil
}

// A submitted transfer that can't be read keeps the worker from nothing, and does not
// make it look as if it did nothing.
// The log says so now and then.
func TestGarbledSubmissionIsPassedOver(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	submitted := bson.M{"state": "Initiated", "epoch": int64(0)}
	e.plant("fine", submitted)
	e.plant("garbled", bson.M{"state": "Initiated", "epoch": int64(0), "metadata": "x"})
	const message = "a submitted transfer can't be read"
	take := func() {
		n := e.take(t.Context(), t.Context(), e.submitted.newScan(takePatience), 0)
		e.all.Wait()
		require.False(t, n.failed)
	}
	for range 3 {
		take()
	}
	require.Equal(t, []string{"fine", "fine", "fine"}, e.run)
	require.Equal(t, 1, e.logged(slog.LevelWarn, message))
	require.Equal(t, 2, e.logged(slog.LevelDebug, message))
	e.pass(2 * e.sweepPeriod())
	take()
	require.Equal(t, 2, e.logged(slog.LevelWarn, message))
}

// A worker whose search goes on past what can't be read is healthy.
func TestHealthyDespiteAGarbledSubmission(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.shift.end(nil)
	e.plant("garbled", bson.M{"state": "Initiated", "epoch": int64(0), "metadata": "x"})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Work(ctx, *e.Settings) }()
	require.Eventually(t, func() bool {
		return e.logged(slog.LevelWarn, "a submitted transfer can't be read") > 0
	}, eventually, time.Millisecond)
	e.pass(jobLimit + 1)
	require.Eventually(t, func() bool { return e.Health.Check() == nil }, eventually, time.Millisecond)
	end()
	require.NoError(t, <-ended)
}

// A search for submitted transfers that fails is reported as the reason why nothing is
// done.
func TestFailedSearchIsNoRound(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	db := client.Database("bank")
	catalog, err := collections.New(collections.Config{
		Transfers: db.Collection("transfers"), Ledgers: map[string]*mongo.Collection{"": db.Collection("accounts")}, Now: time.Now,
	})
	require.NoError(t, err)
	require.NoError(t, client.Disconnect(t.Context()))
	e.Queries = queries.New(catalog)
	e.shift.ask(submitting)
	require.True(t, e.take(t.Context(), t.Context(), e.submitted.newScan(takePatience), 0).failed)
	e.pass(jobLimit + 1)
	e.shift.rang()
	err = e.Health.Check()
	require.ErrorIs(t, err, mongo.ErrClientDisconnected)
	require.ErrorContains(t, err, "the worker's search for submitted transfers has not succeeded for 30s: find on bank.transfers")
}

// A Run that can't begin is not healthy, and says why.
func TestWorkerThatCannotBegin(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.shift.end(nil)
	away := errors.New("the server is away")
	ctx, end := context.WithCancel(t.Context())
	tries := 0
	e.Ready = func(context.Context) error {
		if ctx.Err() != nil {
			return nil
		}
		if tries++; tries > 3 {
			require.ErrorIs(t, e.Health.Check(), away)
			end()
		}
		e.pass(bellLimit / 2)
		return away
	}
	require.NoError(t, Work(ctx, *e.Settings))
	require.Equal(t, 4, tries)
}

// Once its context has ended a worker is not asked for anything, however long it waits
// for what it has begun.
func TestWorkerThatDrainsIsNotChecked(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	e.shift.end(nil)
	begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	e.Permits = func(context.Context) error {
		close(begun)
		<-release
		return nil
	}
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- Work(ctx, *e.Settings) }()
	<-begun
	end()
	e.pass(time.Hour)
	require.Eventually(t, func() bool { return e.Health.Check() == nil }, 10*time.Second, time.Millisecond)
	require.Empty(t, ended, "it still waits")
	close(release)
	require.NoError(t, <-ended)
}

// A job that fails says why in the worker's health, until a round of it succeeds.
func TestJobThatFails(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	ctx, end := context.WithCancel(t.Context())
	failure := errors.New("no such index")
	rounds := 0
	e.repeat(ctx, job{name: expiring, failed: "it has failed", do: func(context.Context) (time.Duration, error) {
		switch rounds++; rounds {
		case 1:
			return 0, failure
		case 2:
			e.pass(jobLimit + 1)
			e.shift.rang()
			require.ErrorIs(t, e.Health.Check(), failure)
			return 0, nil
		}
		require.NoError(t, e.Health.Check())
		end()
		return 0, nil
	}})
	require.GreaterOrEqual(t, rounds, 3)
	require.Equal(t, 1, e.logged(slog.LevelWarn, "it has failed"))
}

// inItsTime runs a test with a worker whose time passes only when everyone waits.
// It must not ask its server.
func inItsTime(t *testing.T, test func(*testing.T, *worker)) {
	t.Helper()
	e := newEmployed(t)
	synctest.Test(t, func(t *testing.T) {
		settings := *e.Settings
		settings.Engine = engine.New(e.b.Store.Store, e.Log, time.Now, engine.Limits{MaxPending: 1})
		settings.Now = time.Now
		settings.Health = NewHealth(time.Now)
		test(t, newWorker(&settings, settings.Health.begin(), func(error) {}))
	})
}

// A job that has failed is tried again within seconds, however long its period is, until
// it succeeds.
// One that the worker works without waits for its period.
func TestFailedJobIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	const failures = 3
	for _, aside := range []bool{false, true} {
		inItsTime(t, func(t *testing.T, w *worker) {
			ctx, end := context.WithCancel(t.Context())
			begun, rounds := time.Now(), 0
			w.repeat(ctx, job{
				name: expiring, aside: aside, period: longestPeriod, rest: bellPeriod,
				do: func(context.Context) (time.Duration, error) {
					if rounds++; rounds <= failures {
						return 0, errors.New("the server has failed")
					}
					end()
					return 0, nil
				},
			})
			require.Equal(t, failures+1, rounds)
			expected := failures * retryPause
			if aside {
				expected = failures * longestPeriod
			}
			require.Equal(t, expected, time.Since(begun))
		})
	}
	require.Less(t, failures*retryPause, jobLimit)
}

// A search for submitted transfers that has failed is tried again within seconds, even if
// nothing is submitted meanwhile.
// After one that has found nothing the worker waits until something is.
func TestFailedSearchIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{true, false} {
		inItsTime(t, func(t *testing.T, w *worker) {
			ctx, end := context.WithTimeout(t.Context(), time.Hour)
			defer end()
			n := w.submitted.newScan(takePatience)
			n.failed = failed
			begun, expected := time.Now(), time.Hour
			if failed {
				expected = retryPause
			}
			w.idle(ctx, ctx, n)
			require.Equal(t, expected, time.Since(begun))
			time.AfterFunc(time.Second, func() { w.bells.ring(queries.Submitted) })
			w.idle(t.Context(), t.Context(), n)
			require.Equal(t, expected+time.Second, time.Since(begun))
		})
	}
}

// A worker that has left out what hangs comes back for it soon after it hangs no longer,
// and otherwise after a pause.
func TestWorkerComesBackForWhatAnswersAgain(t *testing.T) {
	t.Parallel()
	for expected, answers := range map[time.Duration]bool{longestPause: false, time.Second: true} {
		inItsTime(t, func(t *testing.T, w *worker) {
			r := newRoute("x")
			r.inProgress, r.hangs, r.nextTry = 1, true, time.Now().Add(time.Hour)
			w.submitted.taken, w.submitted.routes[r.name] = 1, r
			n := w.submitted.newScan(takePatience)
			n.begun = time.Now().Add(-time.Minute)
			begun := time.Now()
			if answers {
				time.AfterFunc(time.Second, func() { w.submitted.leave(r, begun, Answered) })
			}
			w.idle(t.Context(), t.Context(), n)
			require.InDelta(t, expected, time.Since(begun), float64(2*pollPeriod))
		})
	}
}

// A worker is healthy soon after its searches have failed for a moment, although nothing
// has been submitted since.
func TestHealthyAfterAMomentOfFailures(t *testing.T) {
	e := newEmployed(t)
	e.shift.end(nil)
	wake := make(chan struct{}, 1)
	e.Submitted = wake
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	stop := e.b.Failing(1000, []string{"find"}, bson.M{"errorCode": 1})
	go func() { ended <- Work(ctx, *e.Settings) }()
	wake <- struct{}{}
	require.Eventually(t, func() bool {
		return e.logged(slog.LevelWarn, "a look for submitted transfers has failed") > 0
	}, eventually, time.Millisecond)
	stop()
	e.pass(jobLimit + 1)
	require.Eventually(t, func() bool { return e.Health.Check() == nil }, eventually, time.Millisecond)
	end()
	require.NoError(t, <-ended)
}

// A right that is missing to run submitted transfers is a warning at first, and one a
// minute while that lasts.
// It makes the worker unhealthy once it has lasted, and no more soon after it is back.
func TestWorkerLacksARight(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	missing := errors.New("no right to find on bank.accounts")
	e.Denied = func(err error) bool { return errors.Is(err, missing) }
	e.Run = func(context.Context, document.Transfer) (Ending, error) { return Answered, missing }
	// refusedFor has a transfer refused every few seconds.
	refusedFor := func(while time.Duration) {
		for range int(while / refusedPause) {
			e.pass(refusedPause)
			e.shift.rang()
			e.begin(t.Context(), t.Context(), e.submitted.newScan(0), between())
			e.all.Wait()
			require.True(t, e.refused.Swap(false))
		}
	}
	warnings := func() int {
		return e.logged(slog.LevelWarn, "a submitted transfer could not be run, as a right is missing")
	}
	refusedFor(jobLimit)
	require.Equal(t, 1, warnings())
	require.NoError(t, e.Health.Check(), "it has not lasted for long")
	refusedFor(2 * refusedPause)
	err := e.Health.Check()
	require.ErrorIs(t, err, missing)
	require.ErrorContains(t, err, "the worker has lacked a right for 35s: no right to find on bank.accounts")
	refusedFor(troublePause)
	require.Equal(t, 2, warnings())
	e.pass(refusedLimit + 1)
	e.shift.rang()
	require.NoError(t, e.Health.Check(), "it is not refused any more")

	refusedFor(refusedPause)
	require.Equal(t, 3, warnings(), "and now it is again")
	refusedFor(jobLimit - refusedPause)
	require.NoError(t, e.Health.Check())
	refusedFor(2 * refusedPause)
	require.ErrorIs(t, e.Health.Check(), missing)
}

// Where others are first again and again, a worker leaves most of what it finds to them,
// and no more once it is alone.
func TestWorkerLeavesToItsRivals(t *testing.T) {
	t.Parallel()
	settings := unconnected(t)
	var mu sync.Mutex
	ran, how := 0, Overtaken
	settings.Run = func(context.Context, document.Transfer) (Ending, error) {
		mu.Lock()
		defer mu.Unlock()
		ran++
		return how, nil
	}
	w := newWorker(settings, NewHealth(time.Now).begin(), func(error) {})
	begin := func(found int) (begun int) {
		ran = 0
		for range 500 {
			n := w.submitted.newScan(0)
			n.found = found
			w.begin(t.Context(), t.Context(), n, between())
			w.all.Wait()
		}
		return ran
	}
	require.Equal(t, 500, begin(leastTried), "where there are few it tries them all")
	require.InDelta(t, 500*(1-mostLeft), begin(leastTried+1), 45)
	how = Answered
	require.Equal(t, 500, begin(leastTried))
	require.Greater(t, begin(leastTried+1), 490, "it is alone")
}

// A worker removes the notes of processes that died long ago.
func TestWorkerTidies(t *testing.T) {
	t.Parallel()
	e := newEmployed(t)
	const notes = "transfers.processes"
	e.b.PutIn(notes, bson.M{"_id": "dead", "seen": time.Now().Add(-365 * 24 * time.Hour), "silence": int64(1)})
	tidied := 0
	for _, j := range e.jobs() {
		if j.name == tidying {
			tidied++
			require.True(t, j.aside, "it works without it, too")
			_, err := j.do(t.Context())
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, tidied)
	require.Nil(t, e.b.Raw(notes, "dead"))
}
