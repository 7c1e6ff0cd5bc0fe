package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// crowd runs all verbs at once on the accounts and orders of a shop.
type crowd struct {
	*bank.Bank
	accounts, orders int
	seed             uint64
	done             [6]atomic.Int64 // of each verb
	deaths           atomic.Int64
}

// verb runs the n-th operation under an ID of its own, and reports whether it succeeded.
func (w *crowd) verb(ctx context.Context, c *transfer.Coordinator, random *rand.Rand, n int, id string) bool {
	from := random.IntN(w.accounts)
	req := bank.Move(id, bank.AccountName(from), bank.AccountName((from+1+random.IntN(w.accounts-1))%w.accounts), 1+random.Int64N(40))
	var err error
	switch n {
	case 0:
		_, err = c.Transfer(ctx, req)
	case 1:
		pay := bank.Payment(id, fmt.Sprint("o-", random.IntN(w.orders)), 1)
		pay.From, pay.To = req.From, req.To
		_, err = c.Transfer(ctx, pay)
	case 2:
		if _, err = c.Hold(ctx, req, time.Hour); err == nil {
			_, err = c.Post(ctx, id, transfer.PostAmount(transfer.Units(1)))
		}
	case 3:
		if _, err = c.Hold(ctx, req, time.Hour); err == nil {
			_, err = c.Void(ctx, id)
		}
	case 4:
		if _, err = c.Hold(ctx, req, 5*time.Millisecond); err == nil {
			_, told := c.Wait(ctx, id)
			return errors.Is(told, transfer.ErrExpired)
		}
	case 5:
		if _, err = c.Transfer(ctx, req); err == nil {
			_, err = c.Reverse(ctx, transfer.Reversal{ID: id + "-back", Of: id, All: true})
		}
	}
	return err == nil
}

// work runs one operation after the other.
func (w *crowd) work(ctx context.Context, c *transfer.Coordinator, number int) {
	random := rand.New(rand.NewPCG(w.seed, uint64(number)))
	for n := 0; ctx.Err() == nil; n++ {
		verb := random.IntN(len(w.done))
		if w.verb(ctx, c, random, verb, fmt.Sprint(number, "-", n)) {
			w.done[verb].Add(1)
		}
	}
}

// die runs operations in processes that die at one of their commands.
func (w *crowd) die(ctx context.Context, processes <-chan process, number int) {
	random := rand.New(rand.NewPCG(w.seed, uint64(number)))
	for p := range processes {
		both, cancel := context.WithTimeout(ctx, 10*time.Second)
		unhook := context.AfterFunc(p.ctx, cancel)
		for n := 0; both.Err() == nil; n++ {
			w.verb(both, p.c, random, random.IntN(len(w.done)), fmt.Sprint(number, "-", w.deaths.Load(), "-", n))
		}
		unhook()
		cancel()
		bank.Kill(p.c)
		w.deaths.Add(1)
	}
}

// process is a coordinator that dies with its wire.
type process struct {
	c   *transfer.Coordinator
	ctx context.Context
}

// processes returns processes that die soon.
func (w *crowd) processes(number int) <-chan process {
	w.T.Helper()
	random := rand.New(rand.NewPCG(w.seed, uint64(number)))
	all := make(chan process, number)
	defer close(all)
	for range number {
		ctx, cancel := context.WithCancel(w.T.Context())
		w.T.Cleanup(cancel)
		what := []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held}[random.IntN(3)]
		wire := &bank.Wire{
			At: 5 + random.IntN(25), What: what, Die: true, OnDeath: cancel,
			Also: map[int]bank.Fault{2 + random.IntN(3): bank.AnswerLost, 6 + random.IntN(5): bank.Held},
		}
		w.Wires = append(w.Wires, wire)
		db := w.Through(wire.Client())
		all <- process{w.NewCoordinator(db, bank.Orders(db)...), ctx}
	}
	return all
}

// newCrowd returns a crowd in a shop with enough orders.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	w := &crowd{Bank: bank.NewShop(t, 100, 100, 100, 100).WithIndexes(), accounts: 4, orders: 2000, seed: bank.Seeded(t).Uint64()}
	documents := make([]any, 0, w.orders)
	for i := 3; i < w.orders; i++ {
		documents = append(documents, bank.Order(fmt.Sprint("o-", i)))
	}
	w.Insert("orders", documents...)
	return w
}

// begin starts all work until ctx ends, and returns a function that waits for its end.
func (w *crowd) begin(ctx context.Context) (wait func()) {
	w.T.Helper()
	processes := w.processes(30)
	worker := w.NewCoordinator(w.DB, bank.Orders(w.DB)...)
	sweeper := w.NewCoordinator(w.DB, append(bank.Orders(w.DB), transfer.WithStallThreshold(0))...)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { w.work(ctx, worker, i) })
	}
	for i := range 2 {
		all.Go(func() { w.die(ctx, processes, 10+i) })
	}
	all.Go(func() { _ = sweeper.Run(ctx) })
	return func() {
		all.Wait()
		// A hold that nobody waits for any more is not expired before it is held.
		require.NoError(w.T, worker.Close(w.T.Context()))
	}
}

// busy reports whether each verb has run often enough.
func (w *crowd) busy() bool {
	for i := range w.done {
		if w.done[i].Load() < 5 {
			return false
		}
	}
	return w.deaths.Load() >= 10
}

// Audits find nothing, and the same sum each time, under all verbs at once.
// Orders are paid, holds are posted in part, voided and expire, and transfers are
// reversed.
// Meanwhile processes die, and others take over.
func TestAuditUnderAllVerbs(t *testing.T) {
	t.Parallel()
	w := newCrowd(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	wait := w.begin(ctx)
	expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(400)}}}
	audits, moving := 0, 0
	for audits < 50 || moving < 25 || !w.busy() {
		require.NoError(t, ctx.Err(), "too little has happened: %v, %d deaths", &w.done, w.deaths.Load())
		report, err := w.AuditWith(ctx, expected)
		require.NoError(t, err)
		require.Empty(t, report.Findings)
		audits++
		if !report.InTransit.IsZero() {
			moving++
		}
	}
	stop()
	wait()
	w.ExpireAll()
	w.RecoverAll(bank.Orders(w.DB)...)
	for _, wire := range w.Wires {
		wire.Deliver(t)
	}
	w.ExpireAll() // a message that was held may have begun something
	w.RecoverAll(bank.Orders(w.DB)...)
	report, err := w.AuditWith(t.Context(), expected)
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.True(t, report.InTransit.IsZero())
	t.Logf("%d audits, %d of them with money in transit, %d deaths", audits, moving, w.deaths.Load())
	w.CheckBooks(bank.Balances(100, 100, 100, 100))
}
