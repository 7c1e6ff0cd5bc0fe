package returnat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// moments are how far a call lets a transfer come, and the steps that come after that.
func moments() map[transfer.ReturnAt][]bank.Step {
	return map[transfer.ReturnAt][]bank.Step{
		transfer.AtCommit:  {bank.Decision, bank.Settles, bank.Clears, bank.Finish},
		transfer.AtSettled: {bank.Clears, bank.Finish},
		transfer.AtSuccess: nil,
	}
}

// answering returns a coordinator that answers at a moment, and a sluice.
// That one lets nothing of its next transfer through that comes after the answer.
func answering(b *bank.Bank, at transfer.ReturnAt) (*transfer.Coordinator, *bank.Sluice) {
	b.T.Helper()
	s := bank.NewSluice()
	c := b.NewCoordinator(b.Through(s.Options()), transfer.WithReturnAt(at))
	_, err := c.Transfer(b.T.Context(), bank.Move(fmt.Sprint("warm", at), "a", "b", 1))
	require.NoError(b.T, err)
	_, err = c.Wait(b.T.Context(), fmt.Sprint("warm", at))
	require.NoError(b.T, err)
	require.Eventually(b.T, func() bool { return s.Documents() == 8 }, time.Minute, time.Millisecond, "the last answer is counted, too")
	s.HoldBack(moments()[at]...)
	return c, s
}

// requireEnd waits for the end of a transfer that has moved money from a to b, and
// requires that it has, and that nothing is wrong.
func requireEnd(b *bank.Bank, id string, initial ...int64) {
	b.T.Helper()
	rec, err := b.Wait(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.StateSuccess, rec.State)
	require.Empty(b.T, b.MustAudit().Findings)
	b.CheckBooks(bank.Balances(initial...))
}

// entriesOf returns the amounts and balances of an account's statement.
func entriesOf(b *bank.Bank, account string) (entries [][2]int64) {
	b.T.Helper()
	for entry, err := range b.Statement(b.T.Context(), account, transfer.StatementQuery{}) {
		require.NoError(b.T, err)
		entries = append(entries, [2]int64{bank.Units(b.T, entry.Amount), bank.Units(b.T, entry.Balance)})
	}
	return entries
}

// At the commit the outcome is certain, and others may see nothing of it.
// Nobody can take it back any more.
func TestAnswerAtTheCommit(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c, s := answering(b, transfer.AtCommit)
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	require.Nil(t, rec.Failure)
	stored, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StatePreparing, stored.State)
	b.RequireStanding("a", 39, 99, 0)
	b.RequireStanding("b", 1, 1, 60)
	rolled := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(transfer.RollBack))
	report, err := rolled.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, report)
	s.Open()
	requireEnd(b, "t", 100, 0)
}

// When a transfer is settled, every read by everybody shows it.
// Only its traces are still there.
func TestAnswerWhenSettled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c, s := answering(b, transfer.AtSettled)
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	stored, err := b.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, stored.State)
	require.Equal(t, []string{"t"}, b.IDs(transfer.Query{States: []transfer.State{transfer.StateCommitted}}))
	b.RequireBalance("a", 39)
	b.RequireBalance("b", 61)
	other := b.NewCoordinator(b.DB)
	_, err = other.Transfer(t.Context(), bank.Move("spent", "b", "a", 61))
	require.NoError(t, err, "it can be spent")
	s.Open()
	requireEnd(b, "t", 100, 0)
}

// What sums up accounts or reads the past shows a settled transfer, too.
func TestHistoryWhenSettled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c, s := answering(b, transfer.AtSettled)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	b.RequireStanding("a", 39, 39, 0)
	b.RequireStanding("b", 61, 61, 0)
	require.Equal(t, [][2]int64{{-1, 99}, {-60, 39}}, entriesOf(b, "a"))
	require.Equal(t, [][2]int64{{1, 1}, {60, 61}}, entriesOf(b, "b"))
	require.Empty(t, b.MustAudit().Findings)
	s.Open()
	requireEnd(b, "t", 100, 0)
}

// At the success nothing is left to be done.
func TestAnswerAtTheSuccess(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c, _ := answering(b, transfer.AtSuccess)
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	b.RequireStanding("a", 39, 39, 0)
	b.RequireStanding("b", 61, 61, 0)
	require.Equal(t, [][2]int64{{1, 1}, {60, 61}}, entriesOf(b, "b"))
	require.Zero(t, b.Unfinished())
	requireEnd(b, "t", 100, 0)
}

// Who says nothing gets an answer once the transfer is settled.
func TestDefaultAnswer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	s := bank.NewSluice()
	c, err := transfer.NewCoordinator(b.Through(s.Options()))
	require.NoError(t, err)
	require.NoError(t, c.Setup(t.Context()))
	s.HoldBack(moments()[transfer.AtSettled]...)
	rec, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	require.True(t, rec.State.Decided())
	s.Open()
	require.NoError(t, c.Close(t.Context()))
	require.Zero(t, b.Unfinished(), "Close finishes what was begun")
	requireEnd(b, "t", 100, 0)
}

// brief returns a context that ends soon: what waits for something that never comes gives
// up then.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A repeated call answers as soon as the money is there, from any process, and however
// many callers ask.
// It does not wait until nothing is left to be done.
func TestRepeatAnswersOnceSettled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c, s := answering(b, transfer.AtSettled)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	other := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtSettled))
	for _, by := range []*transfer.Coordinator{other, b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtSettled))} {
		for _, a := range bank.CallAll(8, func(int) (transfer.Record, error) {
			return by.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
		})() {
			require.NoError(t, a.Err)
			require.Equal(t, transfer.StateCommitted, a.Rec.State)
		}
	}
	_, err = b.Transfer(brief(t), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrUnsettled, "at the success")
	s.Open()
	requireEnd(b, "t", 100, 0)
}

// A repeated call does not answer before the money is there, though the record says
// Committed.
func TestRepeatWaitsForTheMoney(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", 4, bank.Lost, 60)
	c := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtSettled))
	rec, err := c.Transfer(brief(t), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, transfer.StateCommitted, rec.State)
	rec, err = b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit)).Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.NoError(t, err)
	require.Equal(t, transfer.StateCommitted, rec.State)
	end := bank.CallAll(2, func(int) (transfer.Record, error) {
		return c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	})
	b.RecoverAll()
	for _, a := range end() {
		require.NoError(t, a.Err)
	}
	requireEnd(b, "t", 100, 0)
}

// Post answers as Transfer does, and so does a repeated one.
func TestPostAnswersOnceSettled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for at, later := range moments() {
		id := fmt.Sprint("h", at)
		b.MustHold(id, 20, time.Hour)
		s := bank.NewSluice()
		c := b.NewCoordinator(b.Through(s.Options()), transfer.WithReturnAt(at))
		require.NoError(t, c.Setup(t.Context()))
		s.HoldBack(later...)
		rec, err := c.Post(t.Context(), id, transfer.PostAmount(transfer.Units(15)))
		require.NoError(t, err)
		require.True(t, rec.State.Decided())
		require.Equal(t, at == transfer.AtSuccess, rec.State.Final())
		repeat := b.NewCoordinator(b.DB, transfer.WithReturnAt(at), transfer.WithStallThreshold(time.Hour))
		patience, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = repeat.Post(patience, id, transfer.PostAmount(transfer.Units(15)))
		require.NoError(t, err)
		_, err = repeat.Post(t.Context(), id)
		require.ErrorIs(t, err, transfer.ErrIDConflict)
		_, err = repeat.Void(t.Context(), id)
		require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
		if at == transfer.AtCommit {
			patient := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtSettled))
			_, err = patient.Post(brief(t), id, transfer.PostAmount(transfer.Units(15)))
			require.ErrorIs(t, err, transfer.ErrUnsettled, "the payee has nothing yet")
		}
		s.Open()
		_, err = b.Wait(t.Context(), id)
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// Each verb finds a transfer committed whose caller was just told so, in this process and
// in others.
func TestVerbsRightAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for at := range moments() {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			c := b.NewCoordinator(b.DB, transfer.WithReturnAt(at))
			for i := range 5 {
				id := fmt.Sprint("t", i)
				_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
				require.NoError(t, err)
				by := []*transfer.Coordinator{c, b.Coordinator}[i%2]
				rec, err := by.Cancel(t.Context(), id, "too late")
				require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
				require.True(t, rec.State.Decided())
				require.Nil(t, rec.Failure)
			}
			for i := range 5 {
				id := fmt.Sprint("u", i)
				_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
				require.NoError(t, err)
				rec, err := c.Reverse(t.Context(), transfer.Reversal{ID: "r" + id, Of: id, All: true})
				require.NoError(t, err)
				require.True(t, rec.State.Decided())
				_, err = c.Reverse(t.Context(), transfer.Reversal{ID: "s" + id, Of: id, All: true})
				require.ErrorIs(t, err, transfer.ErrAlreadyReversed)
			}
			require.NoError(t, c.Close(t.Context()))
			require.Zero(t, b.Unfinished())
			b.RequireBalance("a", 50)
			b.CheckBooks(bank.Balances(100, 0))
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// A transfer that is committed by fact can't be cancelled, though its record is not
// stored.
func TestCancelOfWhatIsCommittedByFact(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("t", 3, bank.Lost, 60)
	for _, at := range []transfer.ReturnAt{transfer.AtCommit, transfer.AtSettled} {
		c := b.NewCoordinator(b.DB, transfer.WithReturnAt(at))
		rec, err := c.Cancel(t.Context(), "t", "too late")
		require.ErrorIs(t, err, transfer.ErrAlreadyCommitted)
		require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
		require.True(t, rec.State.Decided())
	}
	requireEnd(b, "t", 100, 0)
}

// Many transfers at once leave nothing once the coordinator is closed.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	for at := range moments() {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 1000, 0, 0)
			c := b.NewCoordinator(b.DB, transfer.WithReturnAt(at), transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 20}))
			var requests []transfer.Request
			for i := range 150 {
				requests = append(requests, bank.AtMost(fmt.Sprint("t", i), "a", []string{"b", "c"}[i%2], 5))
			}
			records, failures := c.TransferMany(t.Context(), requests)
			for i, err := range failures {
				require.NoError(t, err)
				require.True(t, records[i].State.Decided())
			}
			require.NoError(t, c.Close(t.Context()))
			require.Zero(t, b.Unfinished())
			require.Equal(t, bank.Balances(250, 375, 375), b.Balances())
			b.CheckBooks(bank.Balances(1000, 0, 0))
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// A worker that has ended leaves nothing, though nobody has waited for the end of what it
// has run.
func TestWorkerLeavesNothing(t *testing.T) {
	t.Parallel()
	for at := range moments() {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			for i := range 10 {
				b.MustSubmit(fmt.Sprint("t", i))
			}
			c := b.NewCoordinator(b.DB, transfer.WithReturnAt(at))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			require.Eventually(t, func() bool {
				return len(b.IDs(transfer.Query{States: []transfer.State{transfer.StateInitiated}})) == 0
			}, 5*time.Minute, time.Millisecond)
			stop()
			require.NoError(t, bank.Within(t, ended))
			require.Zero(t, b.Unfinished())
			require.Equal(t, bank.Balances(90, 10), b.Balances())
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// The payee can't be written any more, once everything is prepared.
// At the commit the caller has its answer by then, and learns by another call that the
// transfer is stuck; when settled it learns that at once.
func TestPoisonedPayAfterTheCommit(t *testing.T) {
	t.Parallel()
	for at, want := range map[transfer.ReturnAt]error{transfer.AtCommit: nil, transfer.AtSettled: transfer.ErrUnsettled} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			c, s := answering(b, at)
			s.HoldBack(moments()[transfer.AtCommit]...)
			answer := make(chan error, 1)
			go func() {
				_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
				answer <- err
			}()
			require.Eventually(t, func() bool { return s.Documents() == 3 }, 5*time.Minute, time.Millisecond)
			repair := bank.Forbidden("b")(b)
			s.Open()
			bank.RequireAnswer(t, want, bank.Within(t, answer), "the first answer")
			require.Eventually(t, func() bool {
				rec, err := b.Get(t.Context(), "t")
				return err == nil && rec.Stuck != nil
			}, 5*time.Minute, time.Millisecond)
			b.RequireStuck("t", transfer.StateCommitted, "b", "unwritable", 0)
			for _, again := range []transfer.ReturnAt{transfer.AtSettled, transfer.AtSuccess} {
				rec, err := b.NewCoordinator(b.DB, transfer.WithReturnAt(again)).Transfer(t.Context(), bank.Move("t", "a", "b", 60))
				require.ErrorIs(t, err, transfer.ErrUnsettled)
				require.NotNil(t, rec.Stuck)
			}
			repair()
			b.RecoverAll()
			requireEnd(b, "t", 100, 0)
		})
	}
}
