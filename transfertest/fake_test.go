package transfertest_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

// withoutFake are the methods of a coordinator that a fake lacks on purpose: they are for
// set-up, for a worker's process, and for operators.
func withoutFake() []string {
	return []string{"Setup", "Check", "Adopt", "Run", "Audit", "AuditWith", "RepairMarker", "RepairPending", "RepairOpen"}
}

// A fake has every verb of a coordinator, with the same signature, so that it goes
// wherever a service asks for some of them.
func TestFakeHasEveryVerb(t *testing.T) {
	t.Parallel()
	coordinator, fake := reflect.TypeFor[*transfer.Coordinator](), reflect.TypeFor[*transfertest.Fake]()
	for i := range coordinator.NumMethod() {
		method := coordinator.Method(i)
		same, has := fake.MethodByName(method.Name)
		if slices.Contains(withoutFake(), method.Name) {
			assert.False(t, has, "%s is not among the exceptions any more", method.Name)
			continue
		}
		if assert.True(t, has, "a fake has no %s: pass it on, in verbs.go", method.Name) {
			assert.Equal(t, signature(method.Type), signature(same.Type), method.Name)
		}
	}
	for _, name := range withoutFake() {
		_, has := coordinator.MethodByName(name)
		assert.True(t, has, "a coordinator has no %s", name)
	}
}

// signature returns a method's type without its receiver.
func signature(method reflect.Type) string {
	return strings.Replace(method.String(), method.In(0).String(), "receiver", 1)
}

// A call whose answer was lost is carried out, and the same call then learns the truth.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f := w.fake
	pay := move("pay", "alice", "bob", 10)
	f.InDoubt("pay")
	_, err := f.Transfer(t.Context(), transfer.Request{ID: "pay"})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "what stores nothing is in no doubt")
	rec, err := f.Transfer(t.Context(), pay)
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
	require.EqualError(t, err, `transfer "pay": `+transfer.ErrInDoubt.Error()+": the fake was told to leave it open")
	require.Zero(t, rec)
	requireBalance(t, f, "alice", 90)
	rec, err = f.Transfer(t.Context(), pay)
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	requireBalance(t, f, "alice", 90)

	f.InDoubt("poor")
	_, err = f.Transfer(t.Context(), move("poor", "alice", "bob", 1000))
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.NotErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = f.Transfer(t.Context(), move("poor", "alice", "bob", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
}

// A call that changes nothing is in no doubt, and leaves the order to the next one: that
// which comes too late, and that which is about something else.
func TestInDoubtOfNothing(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	all := transfer.Reversal{ID: "back", Of: "paid", All: true}
	for _, id := range []string{"paid", "refunded"} {
		_, err := f.Transfer(ctx, move(id, "alice", "bob", 10))
		require.NoError(t, err)
	}
	_, err := f.Reverse(ctx, transfer.Reversal{ID: "refund", Of: "refunded", All: true})
	require.NoError(t, err)
	for _, c := range []struct {
		id   string
		call func() (transfer.Record, error)
		want error
	}{
		{"new", func() (transfer.Record, error) { return f.Post(ctx, "new") }, transfer.ErrTransferNotFound},
		{"paid", func() (transfer.Record, error) { return f.Transfer(ctx, move("paid", "alice", "bob", 11)) }, transfer.ErrIDConflict},
		{"paid", func() (transfer.Record, error) { return f.Post(ctx, "paid") }, transfer.ErrNotHeld},
		{"paid", func() (transfer.Record, error) { return f.Cancel(ctx, "paid", "") }, transfer.ErrAlreadyCommitted},
		{"back", func() (transfer.Record, error) {
			return f.Reverse(ctx, transfer.Reversal{ID: "back", Of: "refunded", All: true})
		}, transfer.ErrAlreadyReversed},
		{"back", func() (transfer.Record, error) {
			return f.Reverse(ctx, transfer.Reversal{ID: "back", Of: "paid", Amount: units(11)})
		}, transfer.ErrReversalExceeds},
	} {
		f.InDoubt(c.id)
		_, err := c.call()
		require.ErrorIs(t, err, c.want)
		require.NotErrorIs(t, err, transfer.ErrInDoubt)
	}
	for id, call := range map[string]func() (transfer.Record, error){
		"new":  func() (transfer.Record, error) { return f.Transfer(ctx, move("new", "alice", "bob", 10)) },
		"paid": func() (transfer.Record, error) { return f.Transfer(ctx, move("paid", "alice", "bob", 10)) },
		"back": func() (transfer.Record, error) { return f.Reverse(ctx, all) },
	} {
		_, err := call()
		require.ErrorIs(t, err, transfer.ErrInDoubt, id)
		_, err = call()
		require.NoError(t, err, id)
	}
	requireBalance(t, f, "alice", 90)
}

// Each verb that changes a transfer can be left in doubt.
func TestInDoubtOfEachVerb(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	doubted := func(id string, call func() (transfer.Record, error)) {
		t.Helper()
		f.InDoubt(id)
		_, err := call()
		require.ErrorIs(t, err, transfer.ErrInDoubt)
		rec, err := call()
		require.NoError(t, err)
		require.Equal(t, id, rec.ID)
	}
	hold := func() (transfer.Record, error) { return f.Hold(ctx, move("h", "alice", "bob", 10), time.Hour) }
	doubted("h", hold)
	doubted("h", func() (transfer.Record, error) { return f.Extend(ctx, "h", 2*time.Hour) })
	doubted("h", func() (transfer.Record, error) { return f.Post(ctx, "h") })
	doubted("void", func() (transfer.Record, error) { return f.Hold(ctx, move("void", "alice", "bob", 10), time.Hour) })
	doubted("void", func() (transfer.Record, error) { return f.Void(ctx, "void") })
	doubted("later", func() (transfer.Record, error) { return f.Submit(ctx, move("later", "alice", "bob", 10)) })
	doubted("later", func() (transfer.Record, error) { return f.Cancel(ctx, "later", "") })
	doubted("back", func() (transfer.Record, error) {
		return f.Reverse(ctx, transfer.Reversal{ID: "back", Of: "h", All: true})
	})
	f.InDoubt("b")
	requests := []transfer.Request{move("a", "alice", "bob", 1), move("b", "alice", "bob", 1)}
	_, failures := f.TransferMany(ctx, requests)
	require.NoError(t, failures[0])
	require.ErrorIs(t, failures[1], transfer.ErrInDoubt)
	_, failures = f.TransferMany(ctx, requests)
	require.NoError(t, errors.Join(failures...))
	requireBalance(t, f, "alice", 98)
}

// A transfer that was told to fail is refused, stays refused, and moves nothing.
func TestFail(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{
		transfer.ErrAccountNotFound, transfer.ErrAccountClosed, transfer.ErrAccountFrozen, transfer.ErrCurrencyMismatch,
		transfer.ErrAmountKind, transfer.ErrAccountBusy, transfer.ErrInsufficientFunds, transfer.ErrOverflow,
		transfer.ErrRequirementFailed, transfer.ErrUnwritable,
	} {
		t.Run(reason.Error(), func(t *testing.T) {
			t.Parallel()
			w := inMemory(t)
			w.openBank()
			w.putDocument(bson.D{{Key: "_id", Value: "order"}})
			req := move("t", "alice", "bob", 10)
			req.Effects = []transfer.Effect{{Documents: "orders", ID: "order", Set: bson.D{{Key: "paid", Value: true}}}}
			w.fake.Fail("t", fmt.Errorf("wrapped: %w", reason))
			for range 2 {
				rec, err := w.fake.Transfer(t.Context(), req)
				var refused *transfer.RefusedError
				require.ErrorAs(t, err, &refused)
				require.ErrorIs(t, err, reason)
				require.Equal(t, transfer.Failed, transfer.OutcomeOf(err))
				require.NotEmpty(t, refused.Account)
				require.Equal(t, transfer.StateFail, rec.State)
				require.Equal(t, refused.Account, rec.Failure.Account)
			}
			rec, err := w.fake.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, transfer.StateFail, rec.State)
			requireBalance(t, w.fake, "alice", 100)
			requireBalance(t, w.fake, "bob", 100)
			n, err := w.documents.CountDocuments(t.Context(), bson.D{{Key: "paid", Value: true}})
			require.NoError(t, err)
			require.Zero(t, n)
			_, err = w.fake.Transfer(t.Context(), move("other", "alice", "bob", 10))
			require.NoError(t, err, "only that transfer fails")
		})
	}
}

// Whichever verb begins a transfer, it fails: as a hold, as a reversal, by the worker.
// A failed reversal leaves the original to be reversed by another one.
func TestFailOfEachVerb(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	f.Fail("h", transfer.ErrInsufficientFunds)
	_, err := f.Hold(ctx, move("h", "alice", "bob", 10), time.Hour)
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = f.Post(ctx, "h")
	require.ErrorIs(t, err, transfer.ErrNotHeld)

	f.Fail("submitted", transfer.ErrAccountClosed)
	rec, err := f.Submit(ctx, move("submitted", "alice", "bob", 10))
	require.NoError(t, err)
	require.Equal(t, transfer.StateInitiated, rec.State)
	_, err = f.Wait(ctx, "submitted")
	require.ErrorIs(t, err, transfer.ErrAccountClosed)

	_, err = f.Transfer(ctx, move("t", "alice", "bob", 10))
	require.NoError(t, err)
	f.Fail("back", transfer.ErrInsufficientFunds)
	_, err = f.Reverse(ctx, transfer.Reversal{ID: "back", Of: "t", All: true})
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	requireBalance(t, f, "alice", 90)
	_, err = f.Reverse(ctx, transfer.Reversal{ID: "another", Of: "t", All: true})
	require.NoError(t, err)
	requireBalance(t, f, "alice", 100)
}

// Time passes when the test says so: a hold of a month expires, what is due in a week is
// done, and a record of a later day is younger.
func TestAdvance(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	w := inMemory(t)
	w.openBank()
	f, ctx := w.fake, t.Context()
	_, err := f.Hold(ctx, move("h", "alice", "bob", 60), 30*day)
	require.NoError(t, err)
	later := move("later", "alice", "bob", 10)
	later.NotBefore = f.Now().Add(7 * day)
	_, err = f.Submit(ctx, later)
	require.NoError(t, err)
	ledger, err := f.Ledger("eu")
	require.NoError(t, err)

	f.Advance(6 * day)
	requireState(t, f, "later", transfer.StateInitiated)
	f.Advance(day)
	requireState(t, f, "later", transfer.StateSuccess)
	requireState(t, f, "h", transfer.StatePreparing)
	requireBalance(t, f, "alice", 30)
	f.Advance(23 * day)
	requireState(t, f, "h", transfer.StateFail)
	requireBalance(t, f, "alice", 90)
	_, err = f.Post(ctx, "h")
	require.ErrorIs(t, err, transfer.ErrExpired)

	rec, err := f.Transfer(ctx, move("t", "alice", "bob", 1))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(30*day), rec.CreatedAt, time.Minute)
	require.WithinDuration(t, f.Now(), rec.CreatedAt, time.Minute)
	month := f.Now().Add(-day)
	var recent []string
	for rec, err := range f.List(ctx, transfer.Query{After: month}) {
		require.NoError(t, err)
		recent = append(recent, rec.ID)
	}
	require.Equal(t, []string{"t"}, recent)
	_, err = ledger.Open(ctx, transfer.Account{ID: "opened late"})
	require.NoError(t, err, "a ledger outlives an advance")
}

// A transfer that others wait for is done once the time has come.
func TestWaitWhileTimePasses(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	later := move("later", "alice", "bob", 10)
	later.NotBefore = w.fake.Now().Add(time.Hour)
	_, err := w.fake.Submit(t.Context(), later)
	require.NoError(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		rec, err := w.fake.Wait(t.Context(), "later")
		if assert.NoError(t, err) {
			assert.Equal(t, transfer.StateSuccess, rec.State)
		}
	})
	w.fake.Advance(time.Hour)
	waiting.Wait()
}

// Many goroutines may use a fake: no money is lost, no debit goes below zero, and each
// statement that is read meanwhile begins with what the account was opened with.
func TestFakeInManyHands(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.openBank()
	var hands sync.WaitGroup
	for hand := range 8 {
		hands.Go(func() {
			for i := range 20 {
				from, to := "alice", "bob"
				if (hand+i)%2 == 0 {
					from, to = to, from
				}
				_, err := w.fake.Transfer(t.Context(), move(fmt.Sprint(hand, " ", i%10), from, to, 30))
				if err != nil {
					assert.Equal(t, transfer.Failed, transfer.OutcomeOf(err), "%v", err)
				}
			}
		})
	}
	moving := make(chan struct{})
	go func() { hands.Wait(); close(moving) }()
	for over := false; !over; {
		select {
		case <-moving:
			over = true
		default:
			requireWholeStatement(t, w.fake, "alice", 100)
		}
	}
	w.fake.Advance(0)
	var sum int64
	for _, id := range []string{"alice", "bob"} {
		a, err := w.fake.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.GreaterOrEqual(t, a.Balance.Sign(), 0)
		require.Zero(t, a.Posted.Cmp(a.Balance))
		n, _ := a.Balance.Int64()
		sum += n
	}
	require.Equal(t, int64(200), sum)
}

// requireWholeStatement requires that each entry goes on where the one before has ended.
func requireWholeStatement(t *testing.T, f *transfertest.Fake, id string, opening int64) {
	t.Helper()
	before := units(opening)
	for e, err := range f.Statement(t.Context(), id, transfer.StatementQuery{}) {
		require.NoError(t, err)
		sum, err := before.Add(e.Amount)
		require.NoError(t, err)
		require.Equal(t, sum, e.Balance, "after %s", e.TransferID)
		before = e.Balance
	}
}

func requireBalance(t *testing.T, f *transfertest.Fake, id string, want int64) {
	t.Helper()
	a, err := f.GetAccount(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, units(want), a.Balance)
}

func requireState(t *testing.T, f *transfertest.Fake, id string, want transfer.State) {
	t.Helper()
	rec, err := f.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, want, rec.State)
}

// A mistake in a test's own set-up ends the test, and says which it is.
func TestMistakesOfATest(t *testing.T) {
	t.Parallel()
	for want, mistake := range map[string]func(testing.TB){
		"transfertest: option 1 is nil": func(tb testing.TB) {
			transfertest.NewFake(tb, transfertest.WithLedger("eu"), nil)
		},
		`transfertest: there are no documents "order": see WithDocuments`: func(tb testing.TB) {
			transfertest.NewFake(tb, transfertest.WithDocuments("orders")).Documents("order")
		},
	} {
		r := &recorder{}
		r.run(func(tb testing.TB) {
			mistake(tb)
			require.Fail(t, "the test goes on")
		})
		require.Equal(t, []string{want}, r.errors)
	}
}
