package holds

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/internal/wire"
)

// heldBack returns the options of a client that stops before the first of some commands,
// until it is released: at the latest when the test ends.
func heldBack(t *testing.T, is func(command bson.Raw) bool) (opts *options.ClientOptions, reached chan struct{}, release func()) {
	t.Helper()
	reached, released := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	var once sync.Once
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if is(e.Command) {
			once.Do(func() {
				close(reached)
				<-released
			})
		}
	}}), reached, release
}

// sentToTransfers selects the commands of a name that are sent to the transfers.
func sentToTransfers(name string) func(command bson.Raw) bool {
	return func(command bson.Raw) bool {
		of, _ := command.Lookup(name).StringValueOK()
		return of == "transfers"
	}
}

// A sweep that has found a hold expired, and has not claimed it yet, claims nothing once
// the hold lasts longer by the server's clock.
// One that has claimed it is overtaken by the extension.
func TestExtendedHoldIsNotVoided(t *testing.T) {
	t.Parallel()
	for next, command := range map[string]string{"the claim": "findAndModify", "the decision": "update"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			held := b.MustHold("h", 60, time.Hour)
			b.Expire("h")
			client, reached, release := heldBack(t, sentToTransfers(command))
			c := b.NewCoordinator(b.Through(client))
			swept := make(chan error, 1)
			go func() {
				_, err := c.Recover(t.Context())
				swept <- err
			}()
			bank.Within(t, reached)
			// Another primary has come, whose clock is behind.
			b.Change("transfers", "h", bson.M{"$set": bson.M{"expiresAt": held.ExpiresAt}})
			rec, err := b.Extend(t.Context(), "h", 2*time.Hour)
			release()
			require.NoError(t, err)
			require.NoError(t, bank.Within(t, swept))
			now, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			require.Equal(t, rec, now)
			b.RequireStanding("a", 40, 100, 0)
			_, err = b.Post(t.Context(), "h")
			require.NoError(t, err)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A sweep whose claim of an expired hold was not answered asks whose the hold is, and
// finds that it is not its own.
func TestExtendedHoldIsNotTheSweeps(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	held := b.MustHold("h", 60, time.Hour)
	b.Expire("h")
	w := &bank.Wire{At: -1, AlsoAt: map[bank.Step]bank.Fault{bank.Claim: bank.AnswerLost}}
	var extended transfer.Record
	client := w.Client().SetMonitor(&event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if e.CommandName == "findAndModify" {
			// Another primary has come, whose clock is behind.
			b.Change("transfers", "h", bson.M{"$set": bson.M{"expiresAt": held.ExpiresAt}})
			var err error
			extended, err = b.Extend(t.Context(), "h", 2*time.Hour)
			assert.NoError(t, err)
		}
	}})
	_, err := b.NewCoordinator(b.Through(client)).Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, w.Faults()[bank.AnswerLost])
	now, err := b.Get(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, extended, now)
	_, err = b.Post(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// A Void or a Cancel that an extension overtakes begins again, and decides: an extended
// hold is held no more firmly than any.
func TestVoidOfWhatIsExtended(t *testing.T) {
	t.Parallel()
	for code, decide := range map[string]func(context.Context, *transfer.Coordinator) (transfer.Record, error){
		"voided": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) { return c.Void(ctx, "h") },
		"cancelled": func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
			return c.Cancel(ctx, "h", "")
		},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.MustHold("h", 60, time.Hour)
			client, reached, release := heldBack(t, sentToTransfers("update")) // it has claimed the hold
			c := b.NewCoordinator(b.Through(client))
			decided := make(chan transfer.Record, 1)
			go func() {
				rec, err := decide(t.Context(), c)
				assert.NoError(t, err)
				decided <- rec
			}()
			bank.Within(t, reached)
			rec, err := b.Extend(t.Context(), "h", 2*time.Hour)
			release()
			require.NoError(t, err)
			require.True(t, rec.Held)
			ended := bank.Within(t, decided)
			require.Equal(t, transfer.StateFail, ended.State)
			require.Equal(t, code, ended.Failure.Code)
			require.Equal(t, rec.ExpiresAt.UTC(), ended.ExpiresAt.UTC())
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// An extension that has read the hold, and then comes second, learns what was first.
// It changes nothing.
func TestExtendThatComesSecond(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first func(b *bank.Bank) error
		want  error
	}{
		"a post":   {func(b *bank.Bank) error { return bank.ErrorOf(b.Post(b.T.Context(), "h")) }, transfer.ErrAlreadyCommitted},
		"a void":   {func(b *bank.Bank) error { return bank.ErrorOf(b.Void(b.T.Context(), "h")) }, transfer.ErrNotHeld},
		"a cancel": {func(b *bank.Bank) error { return bank.ErrorOf(b.Cancel(b.T.Context(), "h", "")) }, transfer.ErrNotHeld},
		"an expiry": {func(b *bank.Bank) error {
			b.Expire("h")
			b.RecoverAll()
			return nil
		}, transfer.ErrExpired},
		"the time, and nobody has noticed": {func(b *bank.Bank) error {
			b.Expire("h")
			return nil
		}, transfer.ErrExpired},
		"a longer extension": {func(b *bank.Bank) error {
			return bank.ErrorOf(b.Extend(b.T.Context(), "h", 3*time.Hour))
		}, transfer.ErrInvalidRequest},
		"a shorter extension": {func(b *bank.Bank) error {
			return bank.ErrorOf(b.Extend(b.T.Context(), "h", 90*time.Minute))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.MustHold("h", 60, time.Hour)
			client, reached, release := heldBack(t, sentToTransfers("findAndModify"))
			c := b.NewCoordinator(b.Through(client))
			told := make(chan error, 1)
			go func() {
				_, err := c.Extend(t.Context(), "h", 2*time.Hour)
				told <- err
			}()
			bank.Within(t, reached)
			begun := time.Now()
			err := row.first(b)
			release()
			require.NoError(t, err)
			err = bank.Within(t, told)
			if errors.Is(err, transfer.ErrInDoubt) { // who was first took too long
				require.Greater(t, time.Since(begun), wire.CommandLimit-time.Second)
			} else {
				require.ErrorIs(t, err, row.want)
			}
			b.ExpireAll()
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// An extension that arrives once the hold is decided, or has expired, changes nothing.
func TestLateExtension(t *testing.T) {
	t.Parallel()
	rows := endings()
	delete(rows, "held")
	rows["expired, and nobody has noticed"] = ending{decide: func(b *bank.Bank) (transfer.Record, error) {
		b.Expire("h")
		return b.Get(b.T.Context(), "h")
	}}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 5)
			b.MustHold("h", 60, time.Hour)
			b.Dying(bank.Claim, bank.Held, func(ctx context.Context, c *transfer.Coordinator) error {
				return bank.ErrorOf(c.Extend(ctx, "h", 2*time.Hour))
			})
			extension := b.Wires[0]
			_, err := row.decide(b)
			require.NoError(t, err)
			before := b.Contents()
			extension.Deliver(t)
			require.Equal(t, before, b.Contents())
			b.ExpireAll()
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// A Hold whose last answer is lost has held the money, also if somebody extends it before
// the Hold has found out.
func TestExtendBeforeTheHoldKnows(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	w := &bank.Wire{At: -1, AlsoAt: map[bank.Step]bank.Fault{bank.HeldMark: bank.AnswerLost}}
	var extended transfer.Record
	var once sync.Once
	client := w.Client().SetMonitor(&event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if e.CommandName != "update" || w.Faults()[bank.AnswerLost] == 0 {
			return // a note that the process lives
		}
		once.Do(func() {
			var err error
			extended, err = b.Extend(t.Context(), "h", 2*time.Hour)
			assert.NoError(t, err)
		})
	}})
	c := b.NewCoordinator(b.Through(client))
	rec, err := c.Hold(t.Context(), bank.Move("h", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, w.Faults()[bank.AnswerLost])
	require.Equal(t, extended, rec)
	b.RequireStanding("a", 40, 100, 0)
	_, err = b.Post(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// Callers extend holds that are about to expire, while others post, void and sweep them.
// No hold that was reported to last longer expires before that.
func TestExtendAmongDeciders(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	random := bank.Seeded(t)
	told := map[string]int{}
	for round := range 30 {
		id := fmt.Sprint("h", round)
		_, err := b.Hold(t.Context(), bank.Move(id, "a", "b", 30), time.Duration(5+random.IntN(40))*time.Millisecond)
		require.NoError(t, err)
		var (
			all      sync.WaitGroup
			mu       sync.Mutex
			extended time.Time
		)
		extend := func(expiresIn time.Duration) {
			rec, err := b.Extend(t.Context(), id, expiresIn)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && rec.ExpiresAt.After(extended) {
				extended = rec.ExpiresAt
			}
			told[wordOf(t, err)]++
		}
		for i := range 3 {
			all.Go(func() { extend(time.Hour + time.Duration(i)*time.Minute) })
		}
		switch random.IntN(4) {
		case 0:
			all.Go(func() { _, _ = b.Post(t.Context(), id) })
		case 1:
			all.Go(func() { _, _ = b.Void(t.Context(), id) })
		}
		all.Go(func() { _, _ = b.Recover(t.Context()) })
		all.Wait()
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		if extended.IsZero() {
			continue
		}
		require.False(t, rec.ExpiresAt.Before(extended), "an extension is lost")
		if rec.Failure != nil {
			require.Equal(t, "voided", rec.Failure.Code, "it was to last until %s", extended)
		}
	}
	t.Log(told)
	b.ExpireAll()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// wordOf names the answer to an Extend that races with others.
func wordOf(t *testing.T, err error) string {
	t.Helper()
	for _, one := range []error{transfer.ErrExpired, transfer.ErrAlreadyCommitted, transfer.ErrNotHeld, transfer.ErrInvalidRequest} {
		if errors.Is(err, one) {
			return one.Error()
		}
	}
	assert.NoError(t, err)
	return "extended"
}

// An extension whose answer is lost may be stored.
// If it finds then that another one makes the hold last longer, it can't say that it has
// changed nothing.
func TestExtendInDoubtIsOvertaken(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	w := &bank.Wire{At: -1, AlsoAt: map[bank.Step]bank.Fault{bank.Claim: bank.AnswerLost}}
	is, tries := sentToTransfers("findAndModify"), 0
	client := w.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if !is(e.Command) {
			return
		}
		if tries++; tries == 2 {
			_, err := b.Extend(t.Context(), "h", 10*time.Hour)
			assert.NoError(t, err)
		}
	}})
	c := b.NewCoordinator(b.Through(client))
	rec, err := c.Extend(t.Context(), "h", 2*time.Hour)
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
	require.ErrorContains(t, err, "lasts until")
	require.GreaterOrEqual(t, tries, 2)
	require.Greater(t, time.Until(rec.ExpiresAt), 9*time.Hour)
	_, err = c.Extend(t.Context(), "h", 2*time.Hour)
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err), "asked again: %v", err)
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}
