package verbs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/internal/wire"
)

// A change takes effect once, even if a read after it fails, or its answer is lost:
// whoever has seen it, and has changed the account since, is not overwritten.
func TestUpdateAccountTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*bank.Wire{
		"a read after the change fails": {Of: bank.Reads, To: "transfers", What: bank.Lost},
		"the answer is lost":            {Of: bank.Writes, To: "accounts", What: bank.AnswerLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.MustHold("held", 10, time.Hour)
			mustUpdate(t, b.Coordinator, "a", frozen(true))
			w.Idle, w.Also = true, allButTwo(bank.Lost)
			c := b.NewCoordinator(b.Through(w.Client()))
			mustUpdate(t, c, "b", frozen(false)) // what it asks a server first is asked
			w.SetIdle(false)
			told := make(chan error, 1)
			go func() {
				_, err := c.UpdateAccount(t.Context(), "a", frozen(false))
				told <- err
			}()
			bank.Until(t, time.Millisecond, func() (bool, error) {
				a, err := b.GetAccount(t.Context(), "a")
				return !a.Frozen, err
			})
			mustUpdate(t, b.Coordinator, "a", frozen(true))
			if w.What == bank.Lost { // the driver tries it again, until the command's time is over
				over, cancel := context.WithTimeout(t.Context(), wire.CommandLimit+time.Second)
				<-over.Done()
				cancel()
			}
			w.SetIdle(true)
			err := <-told
			require.True(t, w.HasStruck())
			if w.What == bank.Lost {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, transfer.ErrInDoubt)
				require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
			}
			a, err := b.GetAccount(t.Context(), "a")
			require.NoError(t, err)
			require.True(t, a.Frozen, "it was frozen by who has seen that it was not")
			_, err = b.Void(t.Context(), "held")
			require.NoError(t, err)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// allButTwo has a fault strike all messages but the first two.
func allButTwo(what bank.Fault) map[int]bank.Fault {
	faults := map[int]bank.Fault{}
	for n := 2; n < 1000; n++ {
		faults[n] = what
	}
	return faults
}

// So do closing and reopening: whoever has seen an account closed, and has opened it
// since, has it open. Where somebody has closed it once more, it is closed.
func TestClosingTakesEffectOnce(t *testing.T) {
	t.Parallel()
	closeIt := func(ctx context.Context, c *transfer.Coordinator) error { return c.CloseAccount(ctx, "a") }
	reopenIt := func(ctx context.Context, c *transfer.Coordinator) error { return c.ReopenAccount(ctx, "a") }
	for name, row := range map[string]struct {
		do, undo      func(context.Context, *transfer.Coordinator) error
		closes, again bool
	}{
		"CloseAccount": {closeIt, reopenIt, true, false}, "ReopenAccount": {reopenIt, closeIt, false, false},
		"CloseAccount, and another": {closeIt, reopenIt, true, true}, "ReopenAccount, and another": {reopenIt, closeIt, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 0, 0)
			require.NoError(t, row.undo(t.Context(), b.Coordinator))
			w := &bank.Wire{Of: bank.Writes, To: "accounts", What: bank.AnswerLost, Also: allButTwo(bank.Lost), Idle: true}
			c := b.NewCoordinator(b.Through(w.Client()))
			mustUpdate(t, c, "b", frozen(false)) // what it asks a server first is asked
			w.SetIdle(false)
			told := make(chan error, 1)
			go func() { told <- row.do(t.Context(), c) }()
			bank.Until(t, time.Millisecond, func() (bool, error) {
				a, err := b.GetAccount(t.Context(), "a")
				return a.Closed == row.closes, err
			})
			require.NoError(t, row.undo(t.Context(), b.Coordinator))
			if row.again {
				require.NoError(t, row.do(t.Context(), b.Coordinator))
			}
			w.SetIdle(true)
			err := <-told
			require.True(t, w.HasStruck())
			if !row.again {
				require.ErrorIs(t, err, transfer.ErrInDoubt)
				require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
			} else {
				require.NoError(t, err)
			}
			a, err := b.GetAccount(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, row.closes == row.again, a.Closed, "the latest answer counts")
			b.CheckBooks(bank.Balances(0, 0))
		})
	}
}

// What speaks against a closing after its answer was lost leaves doubt: the message may
// still arrive.
func TestClosingIsRefusedAfterALostMessage(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	w := &bank.Wire{Of: bank.Writes, To: "accounts", What: bank.Lost, Also: allButTwo(bank.Lost), Idle: true}
	w.Also[1] = bank.Lost
	c := b.NewCoordinator(b.Through(w.Client()))
	mustUpdate(t, c, "a", frozen(false))
	w.SetIdle(false)
	told := make(chan error, 1)
	go func() { told <- c.CloseAccount(t.Context(), "b") }()
	bank.Until(t, time.Millisecond, func() (bool, error) { return w.HasStruck(), nil })
	b.MustMove("in", 3)
	w.SetIdle(true)
	err := <-told
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, transfer.ErrAccountNotEmpty)
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
	err = c.CloseAccount(t.Context(), "b")
	require.ErrorIs(t, err, transfer.ErrAccountNotEmpty)
	require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
	b.CheckBooks(bank.Balances(10, 0))
}

// A closing that comes late closes nothing that was reopened since.
func TestLateClosing(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0, 0)
	w := &bank.Wire{Of: bank.Writes, To: "accounts", What: bank.Held, Idle: true}
	w.Also = map[int]bank.Fault{1: bank.Lost} // the driver's own second try, of the same number
	c := b.NewCoordinator(b.Through(w.Client()))
	mustUpdate(t, c, "b", frozen(false))
	w.SetIdle(false)
	require.NoError(t, c.CloseAccount(t.Context(), "a"), "by a later message")
	require.True(t, w.HasStruck())
	require.NoError(t, b.ReopenAccount(t.Context(), "a"))
	w.Deliver(t)
	a, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, a.Closed)
	b.CheckBooks(bank.Balances(0, 0))
}

// Where the answer to an opening is lost, and the account was changed since, it is not
// known who has opened it.
func TestOpenAccountIsChangedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	w := &bank.Wire{Of: bank.Writes, To: "accounts", What: bank.AnswerLost, Idle: true}
	w.Also = allButTwo(bank.Lost)
	w.Also[1] = bank.Lost
	c := b.NewCoordinator(b.Through(w.Client()))
	_, err := c.OpenAccount(t.Context(), transfer.Account{ID: "first"})
	require.NoError(t, err)
	w.SetIdle(false)
	told := make(chan error, 1)
	go func() {
		_, err := c.OpenAccount(t.Context(), transfer.Account{ID: "a"})
		told <- err
	}()
	bank.Until(t, time.Millisecond, func() (bool, error) {
		_, err := b.GetAccount(t.Context(), "a")
		if errors.Is(err, transfer.ErrAccountNotFound) {
			return false, nil
		}
		return err == nil, err
	})
	mustUpdate(t, b.Coordinator, "a", frozen(true))
	w.SetIdle(true)
	err = <-told
	require.True(t, w.HasStruck())
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.ErrorIs(t, err, transfer.ErrAccountExists)
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
	_, err = c.OpenAccount(t.Context(), transfer.Account{ID: "a"})
	require.ErrorIs(t, err, transfer.ErrAccountExists)
	require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
	b.CheckBooks(map[string]int64{"first": 0, "a": 0})
}

// Callers of one process who change the same account take turns: each changes it by one
// write, however many there are.
func TestChangesOfOneAccountTakeTurns(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0)
	var writes atomic.Int64
	count := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup("findAndModify").StringValueOK(); name == "accounts" {
			writes.Add(1)
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(count)))
	const callers = 12 // few enough for their turns to come in time on a busy machine
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			if i%4 == 0 {
				errs <- c.CloseAccount(t.Context(), "a")
				return
			}
			_, err := c.UpdateAccount(t.Context(), "a", frozen(i%2 == 0))
			errs <- err
		}()
	}
	for range callers {
		require.NoError(t, bank.Within(t, errs))
	}
	require.EqualValues(t, callers, writes.Load())
	b.CheckBooks(bank.Balances(0))
}
