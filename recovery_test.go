package transfer_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A sweep reports the transfers that it found, and their outcomes.
// It leaves alone those that have not stalled, and those that wait for a worker.
func TestRecoveryReport(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("prepared", bank.Decision, bank.Lost, 60)
	b.StallAt("claimed", bank.Decision, bank.Lost, 60) // by now the account has too little for it
	b.StallAt("committed", bank.Settles, bank.Lost, 1)
	_, err := b.Submit(t.Context(), bank.Move("submitted", "a", "b", 1))
	require.NoError(t, err)

	report, err := b.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report, "nothing is stalled for 30 s yet")

	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err = c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, report.Found)
	require.Equal(t, 3, report.Succeeded+report.Failed)
	require.GreaterOrEqual(t, report.Succeeded, 2)
	report, err = c.Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report, "a second sweep finds nothing")

	rec, err := b.Get(t.Context(), "committed")
	require.NoError(t, err)
	require.EqualValues(t, 2, rec.Epoch)
	b.RequireAttempts(1, rec)
	rec, err = b.Get(t.Context(), "submitted")
	require.NoError(t, err)
	require.Equal(t, transfer.StateInitiated, rec.State)
	_, err = b.Transfer(t.Context(), bank.Move("submitted", "a", "b", 1))
	require.NoError(t, err, "a Transfer with its ID runs it")
	b.CheckBooks(bank.Balances(100, 0))
}

// Under RollBack, uncommitted transfers are rolled back, and committed ones are settled
// all the same, whether the record is stored or everything was prepared.
func TestRollBackPolicy(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallHalf("prepared", 60)
	b.StallAt("committed by fact", bank.Decision, bank.Lost, 2)
	b.StallAt("committed", bank.Settles, bank.Lost, 1)
	report := b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
	require.Equal(t, transfer.RecoveryReport{Found: 3, Succeeded: 2, Failed: 1}, report)
	rec, err := b.Transfer(t.Context(), bank.Move("prepared", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrCancelled)
	require.Equal(t, "stalled", rec.Failure.Code)
	b.CheckBooks(bank.Balances(100, 0))
}

// Many sweeps at once compete and do no harm.
func TestRacingSweeps(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	for i := range 25 {
		b.StallAt(fmt.Sprint("t", i), bank.Prepares+bank.Step(i%5), bank.Lost, 10)
	}
	var failed atomic.Int64
	for _, err := range bank.Together(6, func(int) error {
		report, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0)).Recover(t.Context())
		failed.Add(int64(report.Failed))
		return err
	}) {
		require.NoError(t, err)
	}
	require.Zero(t, failed.Load(), "every one of them succeeds, whoever finishes it")
	b.RecoverAll()
	require.Equal(t, map[string]int64{"a": 750, "b": 250}, b.Balances())
	b.CheckBooks(bank.Balances(1000, 0))
}

// A transfer that one sweep of a process works on is not stuck for another one.
// Each transfer is reported once.
func TestRacingSweepsOfOneProcess(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	const holds = 20
	for i := range holds {
		b.MustHold(fmt.Sprint("h", i), 1, time.Hour)
	}
	b.ExpireAll()
	var found, expired, stuck atomic.Int64
	for _, err := range bank.Together(8, func(int) error {
		report, err := b.Recover(t.Context())
		found.Add(int64(report.Found))
		expired.Add(int64(report.Expired))
		stuck.Add(int64(report.Stuck))
		return err
	}) {
		require.NoError(t, err)
	}
	require.Equal(t, [3]int64{holds, holds, 0}, [3]int64{found.Load(), expired.Load(), stuck.Load()})
	b.CheckBooks(bank.Balances(1000, 0))
}

// A process doesn't restart a transfer that hangs again and again.
// While one caller waits for it, and will report it, other sweeps leave it out, but not
// for long.
// After that each sweep counts it as stuck, and so do the sweeps that stop waiting for
// it.
func TestTransferThatHangs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	net := &bank.Silence{}
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0),
		transfer.WithAccounts(b.Through(options.Client().SetDialer(net)).Collection("accounts")))
	setAhead := c.ClockAhead()
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	net.Set(true)
	sweep := func(want transfer.RecoveryReport) {
		t.Helper()
		report, err := c.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, report)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := make(chan error, 2)
	var begun transfer.Record
	for n := range 2 {
		go func() {
			report, err := c.Recover(ctx)
			if report != (transfer.RecoveryReport{Found: 1, Stuck: 1}) {
				err = fmt.Errorf("it counts %+v, %w", report, err)
			}
			waiting <- err
		}()
		require.Eventually(t, func() bool {
			begun, err = b.Get(t.Context(), "t")
			return err == nil && begun.Epoch == int64(n)+2
		}, 5*time.Minute, time.Millisecond)
	}
	sweep(transfer.RecoveryReport{})
	setAhead(30 * time.Second)
	sweep(transfer.RecoveryReport{Found: 1, Stuck: 1})
	setAhead(0)
	cancel()
	for range 2 {
		require.NoError(t, bank.Within(t, waiting))
	}
	for range 2 {
		sweep(transfer.RecoveryReport{Found: 1, Stuck: 1})
	}
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, begun.Epoch, rec.Epoch, "it was not begun once more")
	bank.Kill(c)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A sweep that is cut short, because its context ends or the coordinator is closed, says
// so.
// It counts neither transfers that it has not begun nor those that Close has stopped.
func TestRecoverIsCutShort(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cut   func(c *transfer.Coordinator, cancel func())
		want  error
		under int // way at once
	}{
		"context":        {func(_ *transfer.Coordinator, cancel func()) { cancel() }, context.Canceled, 16},
		"close":          {func(c *transfer.Coordinator, _ func()) { go bank.Kill(c) }, transfer.ErrClosed, 0},
		"close in peace": {func(c *transfer.Coordinator, _ func()) { go func() { _ = c.Close(context.Background()) }() }, transfer.ErrClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const stalled = 300
			b := bank.New(t, stalled, 0).WithIndexes()
			b.LeaveCommitted("t", "b", stalled)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var (
				c   *transfer.Coordinator
				cut sync.Once
				log bank.Logged
			)
			written := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				_, noted := e.Reply.LookupErr("upserted") // that the process lives
				if noted != nil && (e.CommandName == "update" || e.CommandName == "bulkWrite") {
					cut.Do(func() { row.cut(c, cancel) })
				}
			}}
			few := transfer.WithGroupCommit(transfer.GroupCommit{MaxBatch: 4, MaxPending: 16}) // so that most are not begun by then
			c = b.NewCoordinator(b.Through(options.Client().SetMonitor(written)), few, transfer.WithLogger(slog.New(&log)))
			report, err := c.Recover(ctx)
			require.Equal(t, row.want, err)
			require.Equal(t, report.Succeeded+report.Stuck, report.Found)
			require.Zero(t, report.Failed)
			require.Less(t, report.Found, stalled)
			require.LessOrEqual(t, report.Stuck, row.under)
			require.Equal(t, report.Stuck, log.Count("a stalled transfer could not be finished"))
			b.RecoverAll()
			b.CheckBooks(bank.Balances(stalled, 0))
		})
	}
}

// A caller that waits for a stalled transfer takes it over once the threshold has passed.
func TestWaitingCallerTakesOver(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	rec, err := b.NewCoordinator(b.DB, transfer.WithStallThreshold(100*time.Millisecond)).Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.EqualValues(t, 2, rec.Epoch)
	b.CheckBooks(bank.Balances(100, 0))
}

// The server's clock was set back.
// A transfer modified further ahead than the threshold is taken over by a sweep, and by a
// call that waits for it. This holds for a hold too.
// A transfer that is ahead by less may still run.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	const threshold = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(threshold))
	for _, id := range []string{"swept", "alive", "awaited"} {
		b.StallAt(id, bank.Decision, bank.Lost, 60)
	}
	b.StallHold("held", bank.HeldMark)
	b.Silence("alive", -threshold/2)
	b.Silence("swept", -2*threshold)
	report, err := c.Recover(ctx)
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, report)
	rec, err := b.Get(t.Context(), "swept")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)

	b.Silence("awaited", -2*threshold)
	rec, err = c.Transfer(ctx, bank.Move("awaited", "a", "b", 60))
	require.NoError(t, err)
	b.RequireAttempts(1, rec)
	b.Silence("held", -2*threshold)
	rec, err = c.Hold(ctx, bank.Move("held", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	b.RequireAttempts(1, rec)
	_, err = c.Post(ctx, "held")
	require.NoError(t, err)
	require.Equal(t, 1, b.RecoverAll().Found, "the one that may be alive")
	b.CheckBooks(bank.Balances(1000, 0))
}

// A transfer whose account is gone stays committed and stuck, and doesn't delay others.
// Once the document is back, with its marker, the transfer goes on.
func TestStuckTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	accounts := b.DB.Collection("accounts")
	b.StallAt("stuck", bank.Settles, bank.Lost, 60)
	b.StallAt("fine", bank.Settles, bank.Lost, 1)
	onlyB := bson.D{{Key: "_id", Value: "b"}}
	var gone bson.Raw
	require.NoError(t, accounts.FindOneAndDelete(t.Context(), onlyB).Decode(&gone))
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 2, Stuck: 2}, report)
	rec, err := c.Transfer(t.Context(), bank.Move("stuck", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.ErrorContains(t, err, `account "b" is gone`)
	require.Equal(t, transfer.StateCommitted, rec.State)

	_, err = accounts.InsertOne(t.Context(), gone)
	require.NoError(t, err)
	require.Equal(t, 2, b.RecoverAll().Succeeded)
	b.CheckBooks(bank.Balances(100, 0))
}

// A transfer is left alone, and counted, if it touches a collection that is not
// registered under its stored name.
func TestForeignLedgerIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	elsewhere := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithAccounts(b.DB.Collection("others")))
	report, err := elsewhere.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
	rec, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.EqualValues(t, 1, rec.Epoch, "it was not taken over")
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A call that decides a transfer with places unknown to this coordinator is refused.
// The error names what to register, and nothing is written.
// A repeated request is in doubt: its transfer is stored, and can't be finished from
// here.
func TestForeignPlacesAreTold(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 1000, 0).WithIndexes()
	eu := transfer.WithLedger("eu", b.DB.Collection("eu"))
	b.Coordinator = b.NewCoordinator(b.DB, append(bank.Orders(b.DB), eu)...)
	b.Insert("eu", bson.D{{Key: "_id", Value: "c"}, {Key: "balance", Value: int64(0)}})
	abroad := transfer.Request{ID: "abroad", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Ledger: "eu", Account: "c", Amount: transfer.Units(1)},
	}}
	_, err := b.Transfer(t.Context(), abroad)
	require.NoError(t, err)
	for id, req := range map[string]transfer.Request{
		"ledger": abroad, "documents": bank.Payment("", "o-1", 1), "accounts": bank.Move("", "a", "b", 1),
	} {
		req.ID = id
		_, err := b.Hold(t.Context(), req, time.Hour)
		require.NoError(t, err)
	}
	fewer := b.NewCoordinator(b.DB)
	elsewhere := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("others")))
	before := b.Raw("transfers")
	for text, c := range map[string]struct {
		*transfer.Coordinator
		id string
	}{
		`ledger "eu", the collection ` + b.DB.Name() + `.eu`: {fewer, "ledger"}, "see WithLedger": {fewer, "ledger"},
		`documents "orders", the collection `: {fewer, "documents"}, "see WithDocuments": {fewer, "documents"},
		`the collection ` + b.DB.Name() + `.accounts`: {elsewhere, "accounts"}, "see WithAccounts": {elsewhere, "accounts"},
	} {
		for verb, err := range map[string]error{
			"post":   func() error { _, err := c.Post(t.Context(), c.id); return err }(),
			"void":   func() error { _, err := c.Void(t.Context(), c.id); return err }(),
			"cancel": func() error { _, err := c.Cancel(t.Context(), c.id, ""); return err }(),
		} {
			require.ErrorIs(t, err, transfer.ErrInvalidRequest, verb)
			require.ErrorContains(t, err, text, verb)
			require.NotErrorIs(t, err, transfer.ErrInDoubt, verb)
		}
	}
	_, err = fewer.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "abroad", All: true})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.ErrorContains(t, err, "see WithLedger")
	require.Equal(t, before, b.Raw("transfers"))

	b.StallAt("t", bank.Decision, bank.Lost, 60)
	_, err = b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithAccounts(b.DB.Collection("others"))).
		Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorContains(t, err, "see WithAccounts")
	require.NotErrorIs(t, err, transfer.ErrInvalidRequest, "it is stored")
	for _, id := range []string{"ledger", "documents", "accounts"} {
		_, err := b.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// A state of a later version is left alone, with an error.
// A document that is not a transfer does not end the sweep.
func TestUnknownDocumentsAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: "odd"}, {Key: "open", Value: true}, {Key: "state", Value: "Preparing"}, {Key: "legs", Value: "none"}},
		bson.D{{Key: "_id", Value: "future"}, {Key: "open", Value: true}, {Key: "state", Value: "Pondering"}, {Key: "legs", Value: bson.A{}}},
	})
	require.NoError(t, err)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	report, err := c.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 2, Succeeded: 1, Stuck: 1}, report)
	_, err = b.Transfer(t.Context(), bank.Move("odd", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	added := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{"odd", "future"}}}}}
	_, err = b.DB.Collection("transfers").DeleteMany(t.Context(), added)
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// A sweep waits for more transfers than it notes at once, and goes on behind documents
// that it can't read.
func TestRecoverUntilFinishedNotesByPortions(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	for i := range 5 {
		b.StallAt(fmt.Sprint("t", i), bank.Decision, bank.Lost, 10)
		b.Silence(fmt.Sprint("t", i), map[bool]time.Duration{true: time.Hour}[i < 2]) // the others are young
	}
	odd := []string{"odd1", "odd2"} // they come before the others
	for _, id := range odd {
		b.Insert("transfers", bson.D{
			{Key: "_id", Value: id}, {Key: "open", Value: true}, {Key: "state", Value: "Preparing"},
			{Key: "legs", Value: "none"}, {Key: "lastModified", Value: time.Unix(0, 0)},
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(2*time.Second))
	report, err := c.RecoverNoting(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 7, Succeeded: 5, Stuck: 2}, report)
	b.Remove("transfers", odd...)
	require.Zero(t, b.Unfinished())
	b.CheckBooks(bank.Balances(1000, 0))
}

// Recover returns to transfers that it has passed over.
// Once their cluster answers again, all of them are finished. Those that still hang are
// stuck.
func TestRecoverComesBackToWhatHung(t *testing.T) {
	t.Parallel()
	const far, inHand = 40, 8 // half of MaxPending
	for name, stays := range map[string]bool{"it answers": false, "it still hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			b.Insert("other", bson.M{"_id": "z", "balance": int64(0)})
			net, s, log := &bank.Silence{}, bank.NewSearches(), &bank.Logged{}
			c := b.NewCoordinator(b.Through(s.Client()), transfer.WithStallThreshold(time.Second), transfer.WithLogger(slog.New(log)),
				transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 2 * inHand}),
				transfer.WithLedger("other", b.Through(options.Client().SetDialer(net).SetConnectTimeout(time.Second)).Collection("other")))
			setAhead := c.ClockAhead()
			_, err := c.Transfer(t.Context(), bank.ToZ("warm"))
			require.NoError(t, err)
			_, err = c.Hold(t.Context(), bank.ToZ("far"), time.Hour)
			require.NoError(t, err)
			planted := b.Plant("far", far, bson.M{"state": "Committed", "committedAt": bank.ThresholdsAgo(1), "lastModified": bank.ThresholdsAgo(1)})
			net.Set(true)
			done := make(chan transfer.RecoveryReport, 1)
			go func() {
				report, err := c.Recover(t.Context())
				assert.NoError(t, err)
				done <- report
			}()
			bank.Within(t, s.Stalled)
			bank.Within(t, s.Stalled) // for the second time: not all could be begun at once
			if stays {
				var ahead time.Duration
				const warning = "a stalled transfer could not be finished"
				require.Eventually(t, func() bool {
					ahead += time.Minute
					setAhead(ahead)
					return log.Count(warning) > 0
				}, 5*time.Minute, time.Second)
			}
			net.Set(false)
			report := bank.Within(t, done)
			require.Equal(t, transfer.RecoveryReport{Found: far, Succeeded: report.Succeeded, Stuck: far - report.Succeeded}, report)
			require.Equal(t, stays, report.Stuck > 0, "%+v", report)

			b.Remove("transfers", planted...)
			_, err = c.Void(t.Context(), "far")
			require.NoError(t, err)
			require.Equal(t, bank.Balances(99, 0), b.Balances())
		})
	}
}
