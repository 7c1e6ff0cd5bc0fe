package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// soon is how long a transfer may take that touches no hanging cluster, whatever waits
// for those clusters.
const soon = 2 * time.Second

const (
	// longAgo is when what has stalled showed a sign of life, by any threshold here.
	longAgo = 2 * time.Hour
	// doneLimit is how long it may take until nothing is left to be done.
	doneLimit = 5 * time.Minute
)

// abroad are ledgers, each on a cluster of its own as far as a coordinator can tell,
// whose networks can fall silent.
type abroad struct {
	*bank.Bank
	net  *bank.Silence
	near *transfer.Coordinator // it reaches all of them
	n    int
	// unbegun selects what was planted, as long as nobody has begun it: whoever does
	// raises its epoch.
	unbegun []bson.M
}

func newAbroad(t *testing.T, n int) *abroad {
	t.Helper()
	a := &abroad{Bank: bank.New(t, 1_000_000, 0).WithIndexes(), net: &bank.Silence{}, n: n}
	for i := range n {
		a.Insert(a.ledger(i), bson.M{"_id": "z", "balance": int64(0)})
	}
	a.near = a.NewCoordinator(a.DB, a.nearby()...)
	return a
}

// nearby registers all ledgers as collections of the bank's database, which they are.
func (a *abroad) nearby() (opts []transfer.Option) {
	for i := range a.n {
		opts = append(opts, transfer.WithLedger(a.ledger(i), a.DB.Collection(a.ledger(i))))
	}
	return opts
}

func (a *abroad) ledger(i int) string { return fmt.Sprint("abroad", i) }

// far returns a coordinator that reaches each ledger through a network that may be
// silent.
func (a *abroad) far(opts ...transfer.Option) *transfer.Coordinator {
	a.T.Helper()
	for i := range a.n {
		// A connection that was opened in the silence stays dead.
		db := a.Through(options.Client().SetDialer(a.net).SetConnectTimeout(time.Second))
		opts = append(opts, transfer.WithLedger(a.ledger(i), db.Collection(a.ledger(i))))
	}
	return a.NewCoordinator(a.DB, opts...)
}

// to moves a unit from account a to a ledger abroad.
func (a *abroad) to(i int, id string) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Ledger: a.ledger(i), Account: "z", Amount: transfer.Units(1)},
	}}
}

// queue submits a number of transfers to each ledger abroad: one by a call, and copies of
// it.
func (a *abroad) queue(each int) {
	a.T.Helper()
	for i := range a.n {
		id := fmt.Sprint("queued", i)
		_, err := a.near.Submit(a.T.Context(), a.to(i, id))
		require.NoError(a.T, err)
		a.plant(0, id, each-1, nil)
	}
}

// plant plants copies of a transfer, and keeps in mind that their epoch is the given one.
func (a *abroad) plant(epoch int64, id string, n int, changes bson.M) {
	a.T.Helper()
	a.unbegun = append(a.unbegun, bson.M{"_id": bson.M{"$in": a.Plant(id, n, changes)}, "epoch": epoch})
}

// spare removes what was planted and nobody has begun.
// That it would be finished is for [TestTheDeadComeBack] to show.
func (a *abroad) spare() {
	a.T.Helper()
	for _, planted := range a.unbegun {
		_, err := a.DB.Collection("transfers").DeleteMany(a.T.Context(), planted)
		require.NoError(a.T, err)
	}
}

// stall leaves a number of transfers to each ledger abroad, whose process has died before
// their prepare.
// They are plain transfers, or expired holds.
func (a *abroad) stall(each int, holds bool) {
	a.T.Helper()
	for i := range a.n {
		id := fmt.Sprint("stalled", i)
		changes := bson.M{"state": "Preparing", "epoch": int64(1), "owner": "dead", "lastModified": time.Now().Add(-longAgo)}
		_, err := a.near.Submit(a.T.Context(), a.to(i, id))
		if holds {
			id, changes = fmt.Sprint("held", i), bson.M{"expiresAt": bank.ThresholdsAgo(10)}
			_, err = a.near.Hold(a.T.Context(), a.to(i, id), time.Hour)
		}
		require.NoError(a.T, err)
		a.plant(1, id, each, changes)
	}
}

// done waits until only holds that have not expired are left, voids them, and ends with
// the audit.
func (a *abroad) done() {
	a.T.Helper()
	for i := range a.n {
		_, err := a.near.Void(a.T.Context(), fmt.Sprint("held", i))
		require.True(a.T, err == nil || errors.Is(err, transfer.ErrTransferNotFound), "%v", err)
	}
	a.ends()
	a.CheckBooks(bank.Balances(1_000_000, 0))
}

// ends waits until no transfer is open.
func (a *abroad) ends() { a.T.Helper(); a.left(0) }

// left waits until no more transfers are open than some.
func (a *abroad) left(some int) {
	a.T.Helper()
	begun := time.Now()
	transfers := a.DB.Collection("transfers", options.Collection().SetReadConcern(readconcern.Majority()))
	require.Eventually(a.T, func() bool {
		n, err := transfers.CountDocuments(a.T.Context(), bson.M{"open": true})
		return err == nil && n <= int64(some)
	}, doneLimit, 50*time.Millisecond)
	a.T.Log("all but ", some, " are done after ", time.Since(begun))
}

// final submits a transfer at home and returns how long it takes to be final.
func (a *abroad) final(c *transfer.Coordinator, id string) (time.Duration, error) {
	begun := time.Now()
	if _, err := c.Submit(a.T.Context(), bank.Move(id, "a", "b", 1)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(a.T.Context(), 90*time.Second)
	defer cancel()
	_, err := c.Wait(ctx, id)
	return time.Since(begun), err
}

// calm returns another bank, which has a worker of its own and no ledger abroad.
func (a *abroad) calm() (other *abroad, end func()) {
	a.T.Helper()
	b := bank.New(a.T, 100, 0)
	return &abroad{Bank: b}, bank.InBackground(a.T, b.Coordinator)
}

// requireSoon requires that a transfer at home is final soon.
// The busier the machine is, the longer it may take: the measure is a transfer in a calm
// bank at the same time.
// On a quiet machine, the one at home takes up to ten times as long.
func (a *abroad) requireSoon(c *transfer.Coordinator, calm *abroad, id string) {
	a.T.Helper()
	type result struct {
		took time.Duration
		err  error
	}
	usual := make(chan result, 1)
	go func() {
		took, err := calm.final(calm.Coordinator, id)
		usual <- result{took, err}
	}()
	took, err := a.final(c, id)
	require.NoError(a.T, err)
	elsewhere := bank.Within(a.T, usual)
	require.NoError(a.T, elsewhere.err)
	a.T.Log("it took ", took, ", elsewhere ", elsewhere.took)
	require.Less(a.T, took, soon+12*elsewhere.took)
}

// warm makes a coordinator reach each ledger abroad.
func (a *abroad) warm(c *transfer.Coordinator) {
	a.T.Helper()
	for i := range a.n {
		_, err := c.Transfer(a.T.Context(), a.to(i, fmt.Sprint("warm", i)))
		require.NoError(a.T, err)
	}
}

// Thousands of submitted transfers for clusters that are away delay nothing else.
// This holds if the process has never reached the clusters, and if they fall silent while
// it works.
func TestSubmittedForTheDead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		dead, queued int
		met          bool
	}{
		"one, never met":   {1, 2500, false},
		"one, met before":  {1, 2500, true},
		"four, never met":  {4, 700, false},
		"four, met before": {4, 700, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t, row.dead)
			c := a.far()
			if row.met {
				a.warm(c)
			}
			end := bank.InBackground(t, c)
			calm, endCalm := a.calm()
			a.requireSoon(c, calm, "before")
			a.net.Set(true)
			a.queue(row.queued)
			for i := range 3 {
				a.requireSoon(a.near, calm, fmt.Sprint("meanwhile", i))
			}
			endCalm()
			a.spare()
			a.net.Set(false)
			a.done()
			end()
		})
	}
}

// A process starts, and thousands of transfers wait for clusters that are away and that
// it has never reached.
// Transfers that need no such cluster don't wait for them.
func TestStartUpAmongTheDead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ dead, queued int }{"one": {1, 5000}, "six": {6, 400}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t, row.dead)
			a.queue(row.queued)
			calm, endCalm := a.calm()
			a.net.Set(true)
			end := bank.InBackground(t, a.far())
			a.requireSoon(a.near, calm, "meanwhile")
			endCalm()
			a.spare()
			a.net.Set(false)
			a.done()
			end()
		})
	}
}

// A worker, and Recover, finish stalled transfers and expired holds within seconds,
// however many clusters hang for the first time, with hundreds of transfers each.
func TestStalledAmongTheDead(t *testing.T) {
	t.Parallel()
	const stalled, expired = false, true
	for name, row := range map[string]struct {
		dead, each int
		holds      bool
		met        bool
		sweep      func(ctx context.Context, c *transfer.Coordinator)
	}{
		"run, four never met, stalled":     {4, 300, stalled, false, runs},
		"run, four met before, stalled":    {4, 300, stalled, true, runs},
		"run, four never met, expired":     {4, 300, expired, false, runs},
		"run, four met before, expired":    {4, 300, expired, true, runs},
		"recover, six never met, stalled":  {6, 200, stalled, false, recovers},
		"recover, six met before, stalled": {6, 200, stalled, true, recovers},
		"recover, six never met, expired":  {6, 200, expired, false, recovers},
		"recover, six met before, expired": {6, 200, expired, true, recovers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t, row.dead)
			c := a.far(transfer.WithStallThreshold(time.Second))
			if row.met {
				a.warm(c)
			}
			a.stall(row.each, row.holds)
			a.StallAt("stalled", bank.Settles, bank.Lost, 1)
			a.MustHold("expired", 1, time.Millisecond)
			a.net.Set(true)
			begun := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				row.sweep(ctx, c)
			}()
			for _, id := range []string{"stalled", "expired"} {
				limited, over := context.WithTimeout(t.Context(), 60*time.Second)
				_, err := a.Wait(limited, id)
				over()
				require.NotErrorIs(t, err, transfer.ErrInDoubt)
				t.Log(id, " after ", time.Since(begun))
			}
			require.Less(t, time.Since(begun), 25*time.Second, "it has waited until the others were given up, after 30 s")
			bank.Kill(c)
			cancel()
			bank.Within(t, done)
			a.spare()
			end := bank.InBackground(t, a.NewCoordinator(a.DB, append(a.nearby(), transfer.WithStallThreshold(time.Second))...))
			a.done()
			end()
		})
	}
}

func runs(ctx context.Context, c *transfer.Coordinator) { _ = c.Run(ctx) }

func recovers(ctx context.Context, c *transfer.Coordinator) { _, _ = c.Recover(ctx) }

// When clusters that were away are back, everything for them is finished soon, without a
// wait for the next sweep: submitted transfers, stalled ones and expired holds.
// That they hang is logged once, and not for each transfer.
func TestTheDeadComeBack(t *testing.T) {
	t.Parallel()
	for name, met := range map[string]bool{"never met": false, "met before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const each = 200
			a := newAbroad(t, 2)
			var log bank.Logged
			// A server may be too busy to answer a claim for half a minute. It is
			// given up, and its transfer may stall anew.
			c := a.far(transfer.WithStallThreshold(time.Minute), transfer.WithLogger(slog.New(&log)))
			if met {
				a.warm(c)
			}
			a.queue(each)
			a.stall(each, false)
			a.stall(each, true)
			a.net.Set(true)
			end := bank.InBackground(t, c)
			const hangs = "a cluster that transfers need doesn't answer: they are tried now and then"
			require.Eventually(t, func() bool { return log.Count(hangs) >= 2*a.n }, 5*time.Minute, 10*time.Millisecond)
			a.net.Set(false)
			begun := time.Now()
			a.left(each * a.n / 10)
			require.Less(t, time.Since(begun), 45*time.Second, "it has waited for the next sweep, which comes once a minute")
			a.done()
			// On a busy machine a cluster seems to hang several times.
			require.LessOrEqual(t, log.Count(hangs), each/10*a.n)
			require.LessOrEqual(t, log.Count("a stalled transfer could not be finished"), each/10*a.n)
			end()
		})
	}
}

// A cluster that stops, and keeps its connections, delays only the transfers that touch
// it.
// When it goes on, so do they.
func TestAStoppedClusterHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	const each = 2500
	set, err := mongotest.StartSet(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	b := bank.New(t, 1_000_000, 0).WithIndexes()
	far := bank.Client(t, set.URI())
	a := &abroad{Bank: b, n: 1}
	c := b.NewCoordinator(b.DB, transfer.WithLedger(a.ledger(0), far.Database(b.DB.Name()).Collection("accounts")))
	require.NoError(t, c.Setup(t.Context()))
	ledger, err := c.Ledger(a.ledger(0))
	require.NoError(t, err)
	_, err = ledger.Open(t.Context(), transfer.Account{ID: "z"})
	require.NoError(t, err)
	a.near = c
	a.warm(c)
	end := bank.InBackground(t, c)
	calm, endCalm := a.calm()
	a.requireSoon(c, calm, "before")
	a.queue(1)
	require.NoError(t, set.Pause(0))
	a.Plant("warm0", each, bson.M{"state": "Initiated", "open": true, "epoch": int64(0), "createdAt": bank.ThresholdsAgo(0)},
		"committedAt", "owner", "notBefore")
	for i := range 3 {
		a.requireSoon(c, calm, fmt.Sprint("meanwhile", i))
	}
	endCalm()
	require.NoError(t, set.Resume(0))
	a.ends()
	end()
	require.Equal(t, bank.Balances(1_000_000-each-6, 4), b.Balances())
	z, err := ledger.Get(t.Context(), "z")
	require.NoError(t, err)
	require.Equal(t, [2]transfer.Amount{transfer.Units(each + 2), transfer.Units(each + 2)}, [2]transfer.Amount{z.Balance, z.Posted})
}
