package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// scenario is a piece of work that faults are tried on.
type scenario struct {
	name     string
	balances []int64
	prepare  func(b *bank) // before the wire is laid
	options  []transfer.Option
	run      func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error)
	calm     error // what run answers without a fault
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "a transfer", balances: []int64{100, 0},
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Transfer(ctx, move("t", "a", "b", 60))
			},
		},
		{
			name: "a transfer that recovery rolls back", balances: []int64{100, 0},
			options: []transfer.Option{transfer.WithStallPolicy(transfer.RollBack)},
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Transfer(ctx, move("t", "a", "b", 60))
			},
		},
		{
			name: "a refused transfer", balances: []int64{50, 0},
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Transfer(ctx, move("t", "a", "b", 60))
			},
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "three accounts, one of them missing", balances: []int64{100, 100},
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Transfer(ctx, transfer.Request{ID: "t", Legs: []transfer.Leg{
					{Account: "a", Amount: transfer.Units(-60)},
					{Account: "b", Amount: transfer.Units(-10)},
					{Account: "nobody", Amount: transfer.Units(70)},
				}})
			},
			calm: transfer.ErrAccountNotFound,
		},
		{
			name: "recovery resumes", balances: []int64{100, 0},
			prepare: func(b *bank) { b.stallAt("t", 3, lost, 60) },
			options: []transfer.Option{transfer.WithStallThreshold(0)},
			run:     recovering,
		},
		{
			name: "recovery settles", balances: []int64{100, 0},
			prepare: func(b *bank) { b.stallAt("t", 3, answerLost, 60) },
			options: []transfer.Option{transfer.WithStallThreshold(0)},
			run:     recovering,
		},
		{
			name: "recovery rolls back", balances: []int64{100, 0},
			prepare: func(b *bank) { b.stallAt("t", 3, lost, 60) },
			options: []transfer.Option{transfer.WithStallThreshold(0), transfer.WithStallPolicy(transfer.RollBack)},
			run:     recovering,
			calm:    transfer.ErrCancelled,
		},
		{
			name: "a cancel", balances: []int64{100, 0},
			prepare: func(b *bank) { b.stallAt("t", 3, lost, 60) },
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Cancel(ctx, "t", "no longer wanted")
			},
		},
	}
}

// recovering sweeps until the transfer is final.
func recovering(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
	for ctx.Err() == nil {
		if _, err := c.Recover(ctx); err != nil {
			continue
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		rec, err := c.Wait(short, "t")
		cancel()
		if !errors.Is(err, transfer.ErrInDoubt) {
			return rec, err
		}
	}
	return transfer.Record{}, fmt.Errorf("%w: %w", transfer.ErrInDoubt, ctx.Err())
}

// Whatever happens to any one message, whether the process dies of it or goes on, and even if the message arrives after everything else
// is over: each transfer happens exactly once or not at all, the caller was told the truth, and nothing is left behind.
func TestEveryMessageMayFail(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		for _, what := range []fault{lost, answerLost, held} {
			for _, die := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/dies=%v", s.name, what, die), func(t *testing.T) {
					t.Parallel()
					points := 0
					for s.strike(t, points, what, die) {
						points++
					}
					require.GreaterOrEqual(t, points, 4, "the table covers too few messages")
				})
			}
		}
	}
}

// strike runs the scenario with a fault at its n-th command, and reports whether it had that many.
func (s scenario) strike(t *testing.T, n int, what fault, die bool) bool {
	t.Helper()
	b := newBank(t, s.balances...)
	if s.prepare != nil {
		s.prepare(b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w := &wire{at: n, what: what, die: die, onDeath: cancel}
	c := b.coordinator(b.through(w.client()), s.options...)
	rec, told := s.run(ctx, c)
	if die {
		kill(c)
	}
	if !w.hasStruck() {
		requireAnswer(t, s.calm, told)
		b.audit(initial(s.balances...))
		return false
	}
	story := fmt.Sprintf("fault at command %d of %v, told %v", n, w.commands, told)
	if !die {
		requireAnswer(t, s.calm, told)
	}
	b.recoverAll(s.options...)
	before := b.balances()
	w.deliver(t)
	require.Equal(t, before, b.balances(), "a late message moved money: %s", story)
	b.recoverAll(s.options...) // a late claim may have begun something
	b.audit(initial(s.balances...))
	if s.prepare == nil || rec.ID != "" {
		b.requireTruth(rec, told, story)
	}
	return true
}

func requireAnswer(t *testing.T, want, told error) {
	t.Helper()
	if want == nil {
		require.NoError(t, told)
		return
	}
	require.ErrorIs(t, told, want)
}

// requireTruth requires that what the caller was told agrees with the final state.
func (b *bank) requireTruth(rec transfer.Record, told error, story string) {
	b.t.Helper()
	if errors.Is(told, transfer.ErrInDoubt) {
		return
	}
	stored, err := b.Get(b.t.Context(), "t")
	if rec.ID == "" {
		// The context's own error, alone: nothing was stored.
		require.ErrorIs(b.t, err, transfer.ErrTransferNotFound, story)
		return
	}
	require.NoError(b.t, err, story)
	require.Equal(b.t, stored.State, rec.State, story)
}
