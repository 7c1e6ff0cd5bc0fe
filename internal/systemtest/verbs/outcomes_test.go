package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// requireOutcome requires that the outcome of a call agrees with the stored transfer,
// before and after it.
func requireOutcome(t *testing.T, rec transfer.Record, err error, before, after bank.RawTransfer, story string) {
	t.Helper()
	switch transfer.OutcomeOf(err) {
	case transfer.Moved:
		require.Contains(t, []string{"Committed", "Success"}, after.State, "%s: %v", story, err)
		require.True(t, rec.State.Final() || rec.State == transfer.StateCommitted, "%s: %v", story, err)
	case transfer.NothingStored, transfer.Unchanged:
		require.Equal(t, before, after, "%s: %v", story, err)
	case transfer.Failed:
		require.Contains(t, []string{"Rollback", "Fail"}, after.State, "%s: %v", story, err)
	case transfer.InDoubt:
		require.True(t, after.Found, "%s: in doubt, and nothing is there that a verb could be in doubt about: %v", story, err)
	default:
		require.Fail(t, "no outcome", "%s: %v", story, err)
	}
}

// The outcome that OutcomeOf returns for an error agrees with the database: whether the
// transfer is stored, and in which state.
func TestOutcomesAreTrue(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 1000, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	bank.Kill(closed)
	b.MustHold("posted", 10, time.Hour)
	b.MustHold("voided", 10, time.Hour)
	b.MustHold("expired", 10, time.Hour)
	b.Expire("expired")
	b.MustHold("overdue", 10, time.Hour)
	b.Expire("overdue")
	ctx := t.Context()
	rows := slices.Concat(transferOutcomes(ended, b, closed), failingOutcomes(ended, b, closed), decidingOutcomes(ended, b, closed))
	for _, row := range rows {
		before := b.RawTransfer(row.id)
		rec, err := row.call()
		require.Equal(t, row.want, transfer.OutcomeOf(err), "%s: %v", row.name, err)
		requireOutcome(t, rec, err, before, b.RawTransfer(row.id), row.name)
	}
	_, err := b.Void(ctx, "voided")
	require.NoError(t, err)
	_, err = b.Post(ctx, "voided")
	require.Equal(t, transfer.Failed, transfer.OutcomeOf(err))
	_, err = b.Extend(ctx, "voided", time.Hour)
	require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
	b.CheckBooks(bank.Balances(1000, 0))
}

// An error of a read, or of a call on accounts, says that nothing was changed.
func TestOutcomesOfReads(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ctx := t.Context()
	for name, row := range map[string]struct {
		err  func() error
		want transfer.Outcome
	}{
		"no transfer":              {func() error { _, err := b.Get(ctx, "t"); return err }, transfer.Unchanged},
		"a transfer, too late":     {func() error { _, err := b.Get(ended, "t"); return err }, transfer.NothingStored},
		"no account":               {func() error { _, err := b.GetAccount(ctx, "x"); return err }, transfer.Unchanged},
		"an account, too late":     {func() error { _, err := b.GetAccount(ended, "a"); return err }, transfer.NothingStored},
		"an account that is there": {func() error { _, err := b.OpenAccount(ctx, transfer.Account{ID: "a"}); return err }, transfer.Unchanged},
		"closed with money":        {func() error { return b.CloseAccount(ctx, "a") }, transfer.Unchanged},
		"changed, and not there":   {func() error { return bank.ErrorOf(b.UpdateAccount(ctx, "x", freezing())) }, transfer.Unchanged},
		"changed, too late":        {func() error { return bank.ErrorOf(b.UpdateAccount(ended, "a", freezing())) }, transfer.NothingStored},
		"accounts, too late": {func() error {
			return bank.LastError(b.Accounts(ended, transfer.AccountQuery{}))
		}, transfer.NothingStored},
		"closed, too late":    {func() error { return b.CloseAccount(ended, "b") }, transfer.NothingStored},
		"a balance, too late": {func() error { _, err := b.BalanceAt(ended, "a", time.Now()); return err }, transfer.NothingStored},
		"a list, too late": {func() (err error) {
			for _, err = range b.List(ended, transfer.Query{}) {
			}
			return err
		}, transfer.NothingStored},
		"a count, too late": {func() error { return bank.ErrorOf(b.Count(ended, transfer.Query{})) }, transfer.NothingStored},
		"a page behind nobody": {func() error {
			return bank.FirstError(b.List(ctx, transfer.Query{Beyond: "nobody"}))
		}, transfer.Unchanged},
		"a statement of nobody": {func() (err error) {
			for _, err = range b.Statement(ctx, "x", transfer.StatementQuery{}) {
			}
			return err
		}, transfer.Unchanged},
		"an audit, too late": {func() error { _, err := b.Audit(ended); return err }, transfer.NothingStored},
	} {
		err := row.err()
		require.Error(t, err, name)
		require.Equal(t, row.want, transfer.OutcomeOf(err), "%s: %v", name, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Faults strike at each message of a transfer, whose process dies there.
// The outcome that the caller gets agrees with the database at once and for ever, though
// recovery rolls back what it may.
func TestOutcomesAreTrueAtEveryMessage(t *testing.T) {
	t.Parallel()
	told, b := map[transfer.Outcome]int{}, bank.NewBare(t)
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost} {
		for point, struck := 0, true; struck; point++ {
			story := fmt.Sprintf("message %d, %s", point, what)
			b.Renew(t, 100, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			w := &bank.Wire{At: point, What: what, Die: true, OnDeath: cancel}
			c := b.NewCoordinator(b.Through(w.Client()))
			rec, err := c.Transfer(ctx, bank.Move("t", "a", "b", 60))
			cancel()
			bank.Kill(c)
			struck = w.HasStruck()
			outcome, now := transfer.OutcomeOf(err), b.RawTransfer("t")
			told[outcome]++
			switch outcome {
			case transfer.Moved:
				requireCommitted(b, now.State, story)
				require.Contains(t, []transfer.State{transfer.StateCommitted, transfer.StateSuccess}, rec.State, story)
				require.Equal(t, err == nil, rec.State == transfer.StateSuccess, "%s: %v", story, err)
			case transfer.NothingStored:
				require.False(t, now.Found, story)
			default:
				require.Equal(t, transfer.InDoubt, outcome, story)
			}
			b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
			if outcome == transfer.Moved {
				require.Equal(t, "Success", b.RawTransfer("t").State, story)
			}
			b.CheckBooks(bank.Balances(100, 0))
		}
	}
	for _, outcome := range []transfer.Outcome{transfer.Moved, transfer.NothingStored, transfer.InDoubt} {
		require.NotZero(t, told[outcome], "%s was never told: %v", outcome, told)
	}
	require.GreaterOrEqual(t, told[transfer.Moved], 10, "a commit that is known is told: %v", told)
}

// requireCommitted requires what is stored of transfer t, which is in a state, when it is
// committed: that is recorded, or every account shows a trace.
func requireCommitted(b *bank.Bank, state, story string) {
	b.T.Helper()
	if state != "Preparing" {
		require.Contains(b.T, []string{"Committed", "Success"}, state, story)
		return
	}
	for _, account := range b.Raw("accounts") {
		require.Len(b.T, account["pending"], 1, story)
	}
}

// underWay starts a transfer of 60, and stops its coordinator after the claim until it is
// released.
func underWay(
	ctx context.Context, b *bank.Bank, id string, opts ...transfer.Option,
) (c *transfer.Coordinator, release func(), told func() []bank.Answer) {
	b.T.Helper()
	claimed, released := make(chan struct{}), make(chan struct{})
	var first, over sync.Once
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if from, _ := e.Command.Lookup("update").StringValueOK(); from == "accounts" {
			first.Do(func() {
				close(claimed)
				<-released
			})
		}
	}}
	c = b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)), opts...)
	release = func() { over.Do(func() { close(released) }) }
	b.T.Cleanup(release)
	told = bank.CallAll(1, func(int) (transfer.Record, error) { return c.Transfer(ctx, bank.Move(id, "a", "b", 60)) })
	bank.Within(b.T, claimed)
	return c, release, told
}

// A call whose context has ended is in doubt if its transfer is in progress in this
// process, since another call has stored it.
// This holds for every verb, and on a coordinator that closes.
// Nothing is known about a finished transfer, or one under another ID. There it is true
// that this call has stored nothing.
func TestEndedContextOfWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Move("original", "a", "b", 1))
	require.NoError(t, err)
	c, release, told := underWay(t.Context(), b, "t")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	verbs := func(ctx context.Context, id string) map[string]error {
		told := map[string]error{}
		_, told["transfer"] = c.Transfer(ctx, bank.Move(id, "a", "b", 60))
		_, told["submit"] = c.Submit(ctx, bank.Move(id, "a", "b", 60))
		_, told["hold"] = c.Hold(ctx, bank.Move(id, "a", "b", 60), time.Hour)
		_, told["post"] = c.Post(ctx, id)
		_, told["void"] = c.Void(ctx, id)
		_, told["extend"] = c.Extend(ctx, id, time.Hour)
		_, told["cancel"] = c.Cancel(ctx, id, "")
		_, told["wait"] = c.Wait(ctx, id)
		_, told["reverse"] = c.Reverse(ctx, transfer.Reversal{ID: id, Of: "original", All: true})
		_, many := c.TransferMany(ctx, []transfer.Request{bank.Move(id, "a", "b", 60)})
		told["many"] = many[0]
		return told
	}
	for verb, err := range verbs(ended, "t") {
		require.ErrorIs(t, err, context.Canceled, verb)
		require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err), "%s: %v", verb, err)
		require.ErrorContains(t, err, "it is under way here for another call; this one: ", verb)
	}
	for verb, err := range verbs(ended, "u") {
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), "%s: %v", verb, err)
	}
	closing := bank.CallAll(1, func(int) (transfer.Record, error) { return transfer.Record{}, c.Close(t.Context()) })
	require.Eventually(t, func() bool { return errors.Is(c.Setup(ended), transfer.ErrClosed) }, time.Minute, time.Millisecond)
	for verb, err := range verbs(t.Context(), "t") {
		require.ErrorIs(t, err, transfer.ErrClosed, verb)
		require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err), "%s: %v", verb, err)
	}
	release()
	first := told()[0]
	require.NoError(t, first.Err)
	require.Equal(t, transfer.StateSuccess, first.Rec.State)
	require.NoError(t, closing()[0].Err)
	for verb, err := range verbs(ended, "t") {
		require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), "%s, and it is over: %v", verb, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Several callers wait for one ID. One of them leaves before its own execution has sent
// anything.
// It is in doubt while the execution of an earlier caller, who has left as well, goes on.
func TestLeavingWhileAnotherExecutionGoesOn(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	leaves, leave := context.WithCancel(t.Context())
	c, release, earlier := underWay(leaves, b, "t", transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 1}))
	leave()
	require.ErrorIs(t, earlier()[0].Err, transfer.ErrInDoubt)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // another execution can't start
	defer cancel()
	_, err := c.Transfer(short, bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err), "%v", err)
	_, err = c.Transfer(short, bank.Move("u", "a", "b", 60))
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), "%v", err)
	release()
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, "Success", b.RawTransfer("t").State)
	b.CheckBooks(bank.Balances(100, 0))
}

// A call that has seen the commit reports it when its wait ends, with the record, and is
// not in doubt.
// This holds for every waiting caller.
func TestCommitIsToldWhenTheWaitEnds(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 200, 0)
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	b.MustHold("h", 60, time.Hour)
	b.Dying(bank.Settles, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "h")
		return err
	})
	require.Equal(t, "Committed", b.RawTransfer("h").State)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(time.Hour))
	for name, call := range map[string]func(context.Context, *transfer.Coordinator) (transfer.Record, error){
		"transfer": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			return c.Transfer(ctx, bank.Move("t", "a", "b", 60))
		},
		"many": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			records, errs := c.TransferMany(ctx, []transfer.Request{bank.Move("t", "a", "b", 60)})
			return records[0], errs[0]
		},
		"wait": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Wait(ctx, "t") },
		"post": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Post(ctx, "h") },
	} {
		var rec transfer.Record
		err := transfer.ErrInDoubt
		for span := 2 * time.Second; errors.Is(err, transfer.ErrInDoubt) && span < time.Minute; span *= 2 {
			short, cancel := context.WithTimeout(t.Context(), span) // long enough to see the commit
			rec, err = call(short, c)
			cancel()
		}
		require.ErrorIs(t, err, transfer.ErrUnsettled, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, "%s: it wraps the cause", name)
		require.NotErrorIs(t, err, transfer.ErrInDoubt, name)
		require.Equal(t, transfer.Moved, transfer.OutcomeOf(err), name)
		require.Equal(t, transfer.StateCommitted, rec.State, name)
		require.Nil(t, rec.Stuck, name)
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(200, 0))
}

// A call that has seen the commit reports it also when the coordinator closes.
// A commit can't be taken back.
func TestCommitIsToldWhenTheCoordinatorCloses(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *transfer.Coordinator) (transfer.Record, error){
		"transfer": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			return c.Transfer(ctx, bank.Move("t", "a", "b", 60))
		},
		"wait": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Wait(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.StallAt("t", bank.Settles, bank.Lost, 60)
			var looks atomic.Int64
			monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if id, _ := e.Reply.Lookup("cursor", "firstBatch", "0", "_id").StringValueOK(); id == "t" {
					looks.Add(1)
				}
			}}
			c := b.NewCoordinator(b.Through(options.Client().SetMonitor(monitor)))
			told := bank.CallAll(1, func(int) (transfer.Record, error) { return call(t.Context(), c) })
			require.Eventually(t, func() bool { return looks.Load() > 3 }, time.Minute, time.Millisecond, "it has seen the transfer")
			require.NoError(t, c.Close(t.Context()))
			a := told()[0]
			require.ErrorIs(t, a.Err, transfer.ErrUnsettled)
			require.ErrorIs(t, a.Err, transfer.ErrClosed)
			require.Equal(t, transfer.Moved, transfer.OutcomeOf(a.Err))
			require.Equal(t, transfer.StateCommitted, a.Rec.State)
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// outcomeRow is a call and its outcome.
type outcomeRow struct {
	name string
	id   string
	call func() (transfer.Record, error)
	want transfer.Outcome
}

// transferOutcomes are calls of a transfer that succeeds, and calls after it.
func transferOutcomes(ended context.Context, b *bank.Bank, closed *transfer.Coordinator) []outcomeRow {
	ctx := b.T.Context()
	return []outcomeRow{
		{"a transfer", "t",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("t", "a", "b", 10)) },
			transfer.Moved},
		{"again", "t", func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("t", "a", "b", 10)) }, transfer.Moved},
		{"again, submitted", "t",
			func() (transfer.Record, error) { return b.Submit(ctx, bank.Move("t", "a", "b", 10)) },
			transfer.Moved},
		{"again, otherwise", "t",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("t", "a", "b", 11)) },
			transfer.Unchanged},
		{"again, with an ended context", "t",
			func() (transfer.Record, error) { return b.Transfer(ended, bank.Move("t", "a", "b", 10)) },
			transfer.NothingStored},
		{"again, of a closed one", "t",
			func() (transfer.Record, error) { return closed.Transfer(ctx, bank.Move("t", "a", "b", 10)) },
			transfer.NothingStored},
		{"waited for, with an ended context", "t",
			func() (transfer.Record, error) { return b.Wait(ended, "t") },
			transfer.NothingStored},
		{"cancelled too late", "t", func() (transfer.Record, error) { return b.Cancel(ctx, "t", "") }, transfer.Unchanged},
		{"voided, and no hold", "t", func() (transfer.Record, error) { return b.Void(ctx, "t") }, transfer.Unchanged},
		{"posted, and no hold", "t", func() (transfer.Record, error) { return b.Post(ctx, "t") }, transfer.Unchanged},
		{"extended, and no hold", "t",
			func() (transfer.Record, error) { return b.Extend(ctx, "t", time.Hour) },
			transfer.Unchanged},
	}
}

// failingOutcomes are calls of transfers that are not stored, or fail.
func failingOutcomes(ended context.Context, b *bank.Bank, closed *transfer.Coordinator) []outcomeRow {
	ctx := b.T.Context()
	return []outcomeRow{
		{"an ended context", "u",
			func() (transfer.Record, error) { return b.Transfer(ended, bank.Move("u", "a", "b", 10)) },
			transfer.NothingStored},
		{"a closed coordinator", "u",
			func() (transfer.Record, error) { return closed.Submit(ctx, bank.Move("u", "a", "b", 10)) },
			transfer.NothingStored},
		{"malformed", "u",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("u", "a", "a", 10)) },
			transfer.NothingStored},
		{"cancelled, and not there", "u",
			func() (transfer.Record, error) { return b.Cancel(ctx, "u", "") },
			transfer.Unchanged},
		{"waited for, and not there", "u", func() (transfer.Record, error) { return b.Wait(ctx, "u") }, transfer.Unchanged},
		{"no such account", "v",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("v", "a", "nobody", 10)) },
			transfer.Failed},
		{"too little money", "w",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("w", "a", "b", 10_000)) },
			transfer.Failed},
		{"too little money, again", "w",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Move("w", "a", "b", 10_000)) },
			transfer.Failed},
		{"the order is missing", "x",
			func() (transfer.Record, error) { return b.Transfer(ctx, bank.Payment("x", "none", 10)) },
			transfer.Failed},
	}
}

// decidingOutcomes are calls of transfers that are decided later.
func decidingOutcomes(ended context.Context, b *bank.Bank, closed *transfer.Coordinator) []outcomeRow {
	ctx := b.T.Context()
	return []outcomeRow{
		{"posted", "posted", func() (transfer.Record, error) { return b.Post(ctx, "posted") }, transfer.Moved},
		{"voided, and posted", "posted", func() (transfer.Record, error) { return b.Void(ctx, "posted") }, transfer.Unchanged},
		{"extended, and posted", "posted",
			func() (transfer.Record, error) { return b.Extend(ctx, "posted", time.Hour) },
			transfer.Unchanged},
		{"extended with an ended context", "voided",
			func() (transfer.Record, error) { return b.Extend(ended, "voided", time.Hour) },
			transfer.NothingStored},
		{"extended to less", "voided",
			func() (transfer.Record, error) { return b.Extend(ctx, "voided", time.Minute) },
			transfer.NothingStored},
		{"extended, and expired", "overdue",
			func() (transfer.Record, error) { return b.Extend(ctx, "overdue", time.Hour) },
			transfer.Failed},
		{"posted with an ended context", "voided",
			func() (transfer.Record, error) { return b.Post(ended, "voided") },
			transfer.NothingStored},
		{"posted by a closed one", "voided",
			func() (transfer.Record, error) { return closed.Post(ctx, "voided") },
			transfer.NothingStored},
		{"posted, and expired", "expired", func() (transfer.Record, error) { return b.Post(ctx, "expired") }, transfer.Failed},
		{"reversed", "back", func() (transfer.Record, error) {
			return b.Reverse(ctx, transfer.Reversal{ID: "back", Of: "posted", All: true})
		}, transfer.Moved},
		{"reversed again", "back-2",
			func() (transfer.Record, error) {
				return b.Reverse(ctx, transfer.Reversal{ID: "back-2", Of: "posted", All: true})
			},
			transfer.Unchanged},
		{"reversed, and failed", "back-3",
			func() (transfer.Record, error) {
				return b.Reverse(ctx, transfer.Reversal{ID: "back-3", Of: "v", All: true})
			},
			transfer.Unchanged},
		{"reversed with an ended context", "back",
			func() (transfer.Record, error) {
				return b.Reverse(ended, transfer.Reversal{ID: "back", Of: "posted", All: true})
			},
			transfer.NothingStored},
	}
}

// A Post of a hold that is already posted reports that the money has moved, even from a
// process that can't finish it.
// A caller that was left to believe that nothing was stored would pay again.
func TestPostOfCommittedIsToldSo(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	b.Dying(bank.Finish, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "h")
		return err
	})
	c := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("others")), transfer.WithStallThreshold(0))
	rec, err := c.Post(t.Context(), "h")
	require.Equal(t, transfer.Moved, transfer.OutcomeOf(err), "%v", err)
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.Equal(t, transfer.StateCommitted, rec.State)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
