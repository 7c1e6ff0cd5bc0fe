package transfertest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

// recorder is a test that is watched: it writes down what would fail it, and ends when
// the test that watches says so.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
	failed   bool
}

func (r *recorder) Helper() {}

func (r *recorder) Name() string { return "TestRecorded" }

func (r *recorder) Context() context.Context { return context.Background() }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool { return r.failed }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// run runs a test to its end, with its cleanups.
func (r *recorder) run(test func(tb testing.TB)) {
	var ended sync.WaitGroup
	ended.Go(func() {
		defer func() {
			for len(r.cleanups) > 0 {
				last := len(r.cleanups) - 1
				cleanup := r.cleanups[last]
				r.cleanups = r.cleanups[:last]
				cleanup()
			}
		}()
		test(r)
	})
	ended.Wait()
}

// A test whose books are in order ends without a word, and its database is gone.
// What it has left is named.
func TestCoordinatorEndsInOrder(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	var db *mongo.Database
	r.run(func(tb testing.TB) {
		db = transfertest.NewDatabase(tb)
		accounts := transfer.WithAccounts(db.Collection("accounts"))
		c := transfertest.NewCoordinator(tb, accounts, transfer.WithTransfers(db.Collection("transfers")))
		openTwo(t, c)
		_, err := c.Transfer(t.Context(), move("t", "alice", "bob", 10))
		require.NoError(t, err)
		_, err = c.Hold(t.Context(), move("h", "alice", "bob", 10), time.Hour)
		require.NoError(t, err)
		_, err = c.Submit(t.Context(), move("s", "alice", "bob", 10))
		require.NoError(t, err)
	})
	require.Empty(t, r.errors)
	require.Equal(t, []string{
		`transfertest: transfer "s" waits for a worker (Run)`,
		`transfertest: transfer "h" is a hold that is neither posted nor voided`,
	}, r.logs)
	left, err := transfertest.NewDatabase(t).Client().ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: db.Name()}})
	require.NoError(t, err)
	require.Empty(t, left)
}

// Money that somebody has made up fails the test, and so does a marker of a transfer that
// is not there.
func TestCoordinatorIsAudited(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.run(func(tb testing.TB) {
		db := transfertest.NewDatabase(tb)
		c := transfertest.NewCoordinator(tb, transfer.WithAccounts(db.Collection("accounts")))
		openTwo(t, c)
		marker := bson.D{{Key: "$set", Value: bson.D{{Key: "pending.lost", Value: int64(-5)}}}}
		_, err := db.Collection("accounts").UpdateByID(t.Context(), "alice", marker)
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()), "a test may close it itself")
	})
	require.NotEmpty(t, r.errors)
	require.Contains(t, r.errors[0], "transfertest: the audit finds ")
	require.Contains(t, r.errors[0], "lost")
}

// A coordinator that the service has made itself is audited with its ledgers.
// One that is closed too early fails the test.
func TestAuditAtEnd(t *testing.T) {
	t.Parallel()
	audited := func(marker, closed bool) *recorder {
		r := &recorder{}
		r.run(func(tb testing.TB) {
			db := transfertest.NewDatabase(tb)
			c, err := transfer.NewCoordinator(db, transfer.WithLedger("eu", db.Collection("europe")))
			require.NoError(t, err)
			tb.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
			transfertest.AuditAtEnd(tb, c)
			require.NoError(t, c.Setup(t.Context()))
			eu, err := c.Ledger("eu")
			require.NoError(t, err)
			_, err = eu.Open(t.Context(), transfer.Account{ID: "x", Balance: units(5)})
			require.NoError(t, err)
			openTwo(t, c)
			_, err = c.Submit(t.Context(), move("s", "alice", "bob", 10))
			require.NoError(t, err)
			_, err = c.Transfer(t.Context(), move("t", "alice", "bob", 10)) // which is not finished when the audit runs
			require.NoError(t, err)
			if marker {
				lost := bson.D{{Key: "$set", Value: bson.D{{Key: "pending.lost", Value: int64(-5)}}}}
				_, err = db.Collection("europe").UpdateByID(t.Context(), "x", lost)
				require.NoError(t, err)
			}
			if closed {
				require.NoError(t, c.Close(t.Context()))
			}
		})
		return r
	}
	inOrder := audited(false, false)
	require.Empty(t, inOrder.errors)
	require.Equal(t, []string{`transfertest: transfer "s" waits for a worker (Run)`}, inOrder.logs)
	found := audited(true, false).errors
	require.NotEmpty(t, found)
	require.Contains(t, found[0], "transfertest: the audit finds ")
	require.Contains(t, found[0], "lost")
	tooEarly := audited(false, true).errors
	require.NotEmpty(t, tooEarly)
	require.Contains(t, tooEarly[0], transfer.ErrClosed.Error())
}

func openTwo(t *testing.T, c *transfer.Coordinator) {
	t.Helper()
	for _, id := range []string{"alice", "bob"} {
		_, err := c.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: units(100)})
		require.NoError(t, err)
	}
}

// Orders that no call has met fail the test: the service has asked for another ID.
func TestUnmetOrders(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.run(func(tb testing.TB) {
		f := transfertest.NewFake(tb)
		f.InDoubt("never asked")
		f.Fail("never begun", transfer.ErrAccountBusy)
	})
	require.Equal(t, []string{
		`transfertest: InDoubt("never asked") was ordered, and no call with this ID came`,
		`transfertest: Fail("never begun") was ordered, and no transfer with this ID was begun`,
	}, r.errors)
}

// An order that makes no sense fails the test at once, and says why.
func TestSenselessOrders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order func(f *transfertest.Fake)
		want  string
	}{
		"no refusal":    {func(f *transfertest.Fake) { f.Fail("t", transfer.ErrCancelled) }, "needs an error by which a transfer is refused"},
		"no error":      {func(f *transfertest.Fake) { f.Fail("t", nil) }, "needs an error by which a transfer is refused"},
		"no ID":         {func(f *transfertest.Fake) { f.InDoubt("") }, `InDoubt("")`},
		"back in time":  {func(f *transfertest.Fake) { f.Advance(-time.Second) }, "time doesn't go back"},
		"too late":      {func(f *transfertest.Fake) { begin(f); f.Fail("t", transfer.ErrAccountBusy) }, "comes too late"},
		"after Close":   {func(f *transfertest.Fake) { _ = f.Close(context.Background()); f.Advance(0) }, "the fake is closed"},
		"a bad option":  {func(f *transfertest.Fake) { begin(f); f.Fail("\xff", transfer.ErrAccountBusy) }, "Fail("},
		"another error": {func(f *transfertest.Fake) { f.Fail("t", context.Canceled) }, "and not: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			r.run(func(tb testing.TB) {
				c.order(transfertest.NewFake(tb))
				require.Fail(t, "the test goes on")
			})
			require.Len(t, r.errors, 1)
			require.Contains(t, r.errors[0], c.want)
			require.True(t, strings.HasPrefix(r.errors[0], "transfertest: "))
		})
	}
}

// begin begins a transfer, which fails for want of accounts.
func begin(f *transfertest.Fake) {
	_, _ = f.Transfer(context.Background(), move("t", "alice", "bob", 1))
}

// Two fakes know nothing of each other, and a fake takes a moment.
func TestFakesAreApart(t *testing.T) {
	t.Parallel()
	one, two := transfertest.NewFake(t), transfertest.NewFake(t)
	_, err := one.OpenAccount(t.Context(), transfer.Account{ID: "alice"})
	require.NoError(t, err)
	_, err = two.GetAccount(t.Context(), "alice")
	require.ErrorIs(t, err, transfer.ErrAccountNotFound)
}

// A fake leaves no goroutine behind.
func TestFakeLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		t.Run("fake", func(t *testing.T) {
			w := inMemory(t)
			w.openBank()
			w.fake.Advance(time.Hour)
			_, err := w.fake.Transfer(t.Context(), move("t", "alice", "bob", 1))
			require.NoError(t, err)
		})
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range 5000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		<-look.C
	}
	stacks := make([]byte, 1<<16)
	require.Fail(t, "goroutines are left", "%s", stacks[:runtime.Stack(stacks, true)])
}
