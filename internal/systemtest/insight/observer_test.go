package insight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// watcher records what an observer is told.
type watcher struct {
	mu        sync.Mutex
	inFlight  map[string]int
	done      []transfer.TransferInfo
	commands  []transfer.CommandInfo
	takeovers []transfer.TakeoverInfo
	swept     []transfer.RecoveryReport
	counted   []transfer.Stats
}

// spanKey is the key of what TransferStarted puts into a context.
type spanKey struct{}

func newWatcher() *watcher { return &watcher{inFlight: map[string]int{}} }

// observer returns an observer that reports everything to the watcher.
func (w *watcher) observer() transfer.Observer {
	record := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
	return transfer.Observer{
		TransferStarted: func(ctx context.Context, s transfer.TransferStart) context.Context {
			record(func() { w.inFlight[s.Verb+" "+s.ID]++ })
			return context.WithValue(ctx, spanKey{}, s.Verb+" "+s.ID)
		},
		TransferDone: func(i transfer.TransferInfo) {
			record(func() { w.inFlight[i.Verb+" "+i.ID]--; w.done = append(w.done, i) })
		},
		CommandDone: func(i transfer.CommandInfo) { record(func() { w.commands = append(w.commands, i) }) },
		TakenOver:   func(i transfer.TakeoverInfo) { record(func() { w.takeovers = append(w.takeovers, i) }) },
		Swept: func(r transfer.RecoveryReport, took time.Duration) {
			record(func() {
				if took > 0 {
					w.swept = append(w.swept, r)
				}
			})
		},
		Counted: func(s transfer.Stats) { record(func() { w.counted = append(w.counted, s) }) },
	}
}

// await waits until a condition holds of what was recorded.
func (w *watcher) await(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return holds()
	}, 5*time.Minute, time.Millisecond)
}

// take returns the calls that have ended, and forgets them.
func (w *watcher) take() []transfer.TransferInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.done
	w.done = nil
	return taken
}

// requireBalanced requires that each call that has begun has ended, once.
func (w *watcher) requireBalanced(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for call, n := range w.inFlight {
		assert.Zero(t, n, call)
	}
	assert.NotEmpty(t, w.inFlight)
}

// toldOf is a call in short: verb, ID, outcome and state.
func toldOf(i transfer.TransferInfo) string { return fmt.Sprintln(i.Verb, i.ID, i.Outcome, i.State) }

func namesOf(stages []transfer.Stage) (names []string) {
	for _, s := range stages {
		names = append(names, s.Name)
	}
	return names
}

// requireCall requires that one call was reported, and what of it.
func (w *watcher) requireCall(t *testing.T, want string, stages []string, failure error) {
	t.Helper()
	all := w.take()
	require.Len(t, all, 1)
	info := all[0]
	require.Equal(t, want+"\n", toldOf(info))
	require.Equal(t, failure, info.Err)
	require.Equal(t, transfer.OutcomeOf(failure), info.Outcome)
	require.Equal(t, info.Verb+" "+info.ID, info.Context.Value(spanKey{}))
	require.Equal(t, stages, bank.WithoutDoubt(stages, namesOf(info.Stages)))
	until := info.Begun
	for n, s := range info.Stages {
		require.False(t, s.Begun.Before(until), "%v", info.Stages)
		if n > 0 {
			require.True(t, s.Begun.Equal(until), "there is no gap: %v", info.Stages)
		}
		until = s.Begun.Add(s.Took)
	}
	require.False(t, info.Begun.Add(info.Took).Before(until))
}

// Each call about a transfer is reported when it begins and when it ends, with its
// outcome and its stages, which fill the time of the call without a gap.
func TestObserverSeesEachCall(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	w := newWatcher()
	c := b.NewCoordinator(b.DB, transfer.WithObserver(w.observer()))
	ctx := t.Context()
	call := func(want string, stages []string, do func() error) {
		t.Helper()
		w.requireCall(t, want, stages, do())
	}
	of := func(_ transfer.Record, err error) error { return err }
	whole := []string{"wait", "read", "claim", "prepare", "settle", "clear", "finish"}
	call("transfer t Moved Success", whole, func() error { return of(c.Transfer(ctx, bank.Move("t", "a", "b", 10))) })
	known := slices.Delete(slices.Clone(whole), 1, 2)
	call("transfer u Moved Success", known, func() error { return of(c.Transfer(ctx, bank.Move("u", "a", "b", 10))) })
	taken := []string{"wait", "claim", "look", "wait"}
	call("transfer t Moved Success", taken, func() error { return of(c.Transfer(ctx, bank.Move("t", "a", "b", 10))) })
	call("transfer t Unchanged Success", taken, func() error { return of(c.Transfer(ctx, bank.Move("t", "a", "b", 11))) })
	call("transfer poor Failed Fail", []string{"wait", "claim", "prepare", "look", "undo", "finish"},
		func() error { return of(c.Transfer(ctx, bank.Move("poor", "b", "a", 500))) })
	call("transfer odd NothingStored ", nil, func() error { return of(c.Transfer(ctx, bank.Move("odd", "a", "a", 500))) })
	call("submit s Moved Initiated", []string{"store"}, func() error { return of(c.Submit(ctx, bank.Move("s", "a", "b", 10))) })
	call("cancel s Moved Fail", []string{"read", "wait", "claim", "finish"}, func() error { return of(c.Cancel(ctx, "s", "")) })
	call("hold h Moved Preparing", []string{"wait", "read", "claim", "prepare", "hold"},
		func() error { return of(c.Hold(ctx, bank.Move("h", "a", "b", 10), time.Hour)) })
	call("extend h Moved Preparing", []string{"read"}, func() error { return of(c.Extend(ctx, "h", 2*time.Hour)) })
	call("post h Moved Success", []string{"read", "wait", "claim", "settle", "finish"}, func() error { return of(c.Post(ctx, "h")) })
	call("void h Unchanged Success", []string{"read"}, func() error { return of(c.Void(ctx, "h")) })
	call("void nobody Unchanged ", []string{"read"}, func() error { return of(c.Void(ctx, "nobody")) })
	call("reverse r Moved Success", []string{"read", "wait", "read", "claim", "prepare", "settle", "finish"}, func() error {
		return of(c.Reverse(ctx, transfer.Reversal{ID: "r", Of: "t", All: true}))
	})
	w.requireBalanced(t)
	b.end()
}

// requireTakeovers requires that the takeovers of some transfers are reported, each once,
// and no others. What a busy server was asked twice is nobody's takeover.
func requireTakeovers(t *testing.T, told map[string]int, ids ...string) {
	t.Helper()
	require.NotEmpty(t, told)
	for id, n := range told {
		require.Contains(t, ids, id)
		require.Equal(t, 1, n, id)
	}
}

// What Run and Recover work on is reported as well, as who was first, and as what was in
// the way.
// Sweeps, takeovers and counts are reported, too.
func TestObserverSeesWork(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	w := newWatcher()
	b.StallAt("stalled", bank.Clears, bank.Lost, 10)
	owner, err := b.Get(t.Context(), "stalled")
	require.NoError(t, err)
	b.Silence("stalled", time.Hour)
	b.rollBack("back")
	b.MustHold("held", 10, time.Hour)
	b.Expire("held")
	c := b.NewCoordinator(b.DB, transfer.WithObserver(w.observer()), transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 3, Succeeded: 1, Failed: 2, Expired: 1}, report)
	require.Equal(t, []transfer.RecoveryReport{report}, w.swept)
	var told []string
	for _, info := range w.take() {
		told = append(told, toldOf(info))
		require.NoError(t, info.Err)
		require.Contains(t, namesOf(info.Stages), "claim")
	}
	require.ElementsMatch(t, []string{"recover stalled Moved Success\n", "recover back Failed Fail\n", "expire held Failed Fail\n"}, told)
	takeovers := map[string]int{}
	for _, info := range w.takeovers {
		takeovers[info.ID]++
		require.Equal(t, "recover", info.Verb)
		require.Equal(t, 1, info.Takeovers)
		require.Equal(t, "recover "+info.ID, info.Context.Value(spanKey{}))
		if info.ID == "stalled" {
			require.Equal(t, owner.Owner, info.Owner)
			require.Equal(t, transfer.StateCommitted, info.State)
			require.Greater(t, info.Idle, 59*time.Minute)
		}
	}
	requireTakeovers(t, takeovers, "stalled", "back")

	b.MustSubmit("submitted")
	// With its threshold, c's sweeps would take over what its worker is about to finish.
	end := bank.InBackground(t, b.NewCoordinator(b.DB, transfer.WithObserver(w.observer())))
	w.await(t, func() bool { return len(w.done) > 0 && len(w.counted) > 0 && len(w.swept) > 1 })
	end()
	require.Equal(t, "run submitted Moved Success\n", toldOf(w.take()[0]))
	w.requireBalanced(t)
	b.end()
}

// A caller who has waited for another process takes its transfer over.
// That call's verb, and its context, are reported.
func TestObserverSeesTheCallersTakeover(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	w := newWatcher()
	c := b.NewCoordinator(b.DB, transfer.WithObserver(w.observer()))
	id := ""
	for round := 0; len(w.takeovers) == 0; round++ { // a busy server may be asked twice
		require.Less(t, round, 10)
		id = fmt.Sprint("t", round)
		b.StallAt(id, bank.Decision, bank.Lost, 10)
		b.Silence(id, time.Hour)
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.NoError(t, err)
		require.Contains(t, namesOf(w.take()[0].Stages), "wait")
	}
	require.Len(t, w.takeovers, 1)
	require.Equal(t, "transfer", w.takeovers[0].Verb)
	require.Equal(t, "transfer "+id, w.takeovers[0].Context.Value(spanKey{}))
	w.requireBalanced(t)
	b.end()
}

// Of several processes that would take a transfer over, the one that has got it is told
// of the takeover.
func TestATakeoverIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	const n = 50
	b.LeaveCommitted("t", "b", n)
	w := newWatcher()
	processes := b.Processes(4, transfer.WithObserver(transfer.Observer{TakenOver: w.observer().TakenOver}))
	for _, err := range bank.Together(len(processes), func(i int) error {
		_, err := processes[i].Recover(t.Context())
		return err
	}) {
		require.NoError(t, err)
	}
	all := map[string]int{}
	for _, info := range w.takeovers {
		all[info.ID]++
		require.Equal(t, 1, info.Takeovers)
	}
	requireTakeovers(t, all, bank.Numbered("t", n)...)
	b.end()
}

// A worker that finds that another one was first has begun, and ends as Unchanged.
func TestObserverSeesWhoWasFirst(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	all := make([]*watcher, 4)
	var ends []func()
	for i := range all {
		all[i] = newWatcher()
		ends = append(ends, bank.InBackground(t, b.NewCoordinator(b.DB, transfer.WithObserver(all[i].observer()))))
	}
	ids := bank.Numbered("t", 200)
	for _, id := range ids {
		b.MustSubmit(id)
	}
	for _, id := range ids {
		b.UntilSuccess(b.Coordinator, id)
	}
	for _, end := range ends {
		end()
	}
	moved := 0
	for _, w := range all {
		for _, info := range w.take() {
			if info.Outcome == transfer.Moved {
				moved++
			} else {
				require.Equal(t, transfer.Unchanged, info.Outcome, "%+v", info)
			}
		}
		for call, n := range w.inFlight {
			require.Zero(t, n, call)
		}
	}
	require.Equal(t, len(ids), moved, "each was run once")
	b.end()
}

// Commands are reported with what they carry.
// Callers who come together share them, and each operation is in one command.
func TestObserverSeesCommands(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	w := newWatcher()
	c := b.NewCoordinator(b.DB, transfer.WithObserver(transfer.Observer{CommandDone: w.observer().CommandDone}),
		transfer.WithGroupCommit(transfer.GroupCommit{MaxBatch: 8, MaxInFlight: 1}))
	_, failures := c.TransferMany(t.Context(), movesOf(200))
	require.Equal(t, make([]error, 200), failures)
	require.NoError(t, c.Close(t.Context()))
	byVerb := map[string]int{}
	largest, queued := 0, 0
	for _, info := range w.commands {
		require.True(t, wasInTimeOrLate(info.Err), "%v", info.Err)
		require.Positive(t, info.Took)
		byVerb[info.Verb] += info.Operations
		largest, queued = max(largest, info.Operations), max(queued, info.Queued)
	}
	require.GreaterOrEqual(t, byVerb["claim"], 200, "a busy server is asked again")
	require.GreaterOrEqual(t, byVerb["record"], 400, "each has a record and an end")
	require.GreaterOrEqual(t, byVerb["write"], 800, "two prepares, and what removes their marks")
	require.GreaterOrEqual(t, largest, 8, "a statement may carry several operations")
	require.Greater(t, queued, 8)
	b.end()
}

// wasInTimeOrLate reports whether a command has failed for nothing but a busy server, by
// this process's clock or by the server's.
func wasInTimeOrLate(err error) bool {
	return err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "MaxTimeMSExpired")
}

func movesOf(n int) (all []transfer.Request) {
	for _, id := range bank.Numbered("m", n) {
		all = append(all, bank.Move(id, "a", "b", 1))
	}
	return all
}

// Commands of one call alone are sent with the values of the context that TransferStarted
// has returned, so that spans of the driver's are children of the call's.
func TestCallsGoOnWithTheObserversContext(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	var mu sync.Mutex
	seenIn := map[string]any{}
	monitor := &event.CommandMonitor{Started: func(ctx context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		if collection, ok := e.Command.Lookup(e.CommandName).StringValueOK(); ok && e.CommandName != "aggregate" &&
			collection != "transfers.processes" {
			seenIn[e.CommandName+" "+collection] = ctx.Value(spanKey{})
		}
	}}
	w := newWatcher()
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)), transfer.WithObserver(w.observer()))
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	seenIn = map[string]any{}
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"insert transfers": "transfer t", "update transfers": "transfer t", "update accounts": "transfer t",
	}, seenIn)
	b.end()
}

// Whatever an observer does, transfers go on: a function that panics, and one that loses
// the context.
// The first panic of each function is logged.
func TestObserverThatPanics(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	log := &bank.Logged{}
	boom := func() { panic("boom") }
	c := b.NewCoordinator(b.DB, transfer.WithLogger(slog.New(log)), transfer.WithStallThreshold(0), transfer.WithObserver(transfer.Observer{
		TransferStarted: func(context.Context, transfer.TransferStart) context.Context { boom(); return nil },
		TransferDone:    func(transfer.TransferInfo) { boom() },
		CommandDone:     func(transfer.CommandInfo) { boom() },
		TakenOver:       func(transfer.TakeoverInfo) { boom() },
		Swept:           func(transfer.RecoveryReport, time.Duration) { boom() },
		Counted:         func(transfer.Stats) { boom() },
	}))
	b.StallAt("stalled", bank.Clears, bank.Lost, 10)
	for range 3 {
		_, err := c.Recover(t.Context())
		require.NoError(t, err)
	}
	_, failures := c.TransferMany(t.Context(), movesOf(100))
	require.Equal(t, make([]error, 100), failures)
	end := bank.InBackground(t, c)
	const message = "a function of the observer has panicked, and its other panics are not logged"
	require.Eventually(t, func() bool { return log.Count(message) == 6 }, time.Minute, time.Millisecond)
	end()
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, 6, log.Count(message), "once for each function")
	b.end()

	lost := b.NewCoordinator(b.DB, transfer.WithObserver(transfer.Observer{
		TransferStarted: func(context.Context, transfer.TransferStart) context.Context { return nil },
	}))
	_, err := lost.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
	b.end()
}
