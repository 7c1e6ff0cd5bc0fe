package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// steps are what happens to the first command of some steps.
type steps map[bank.Step]bank.Fault

// scenario is an operation that faults are tried on.
// It concerns the transfer t, of 60 from a to b.
type scenario struct {
	name     string
	balances []int64
	prepare  func(b *bank.Bank)                                        // before the wire is laid
	warm     func(t *testing.T, b *bank.Bank, c *transfer.Coordinator) // over the wire, before the faults
	also     steps                                                     // faults in every round
	at       transfer.ReturnAt                                         // how far the tested coordinator's calls wait
	ledgers  func(db *mongo.Database) []transfer.Option                // of all coordinators
	stall    time.Duration                                             // the threshold of the tested coordinator; 0: 30 s
	policy   transfer.StallPolicy                                      // 0: both
	run      func(context.Context, *transfer.Coordinator) (transfer.Record, error)
	calm     error              // the error of run without a fault
	check    func(b *bank.Bank) // at the end, besides the audit
}

func (s scenario) options(db *mongo.Database) []transfer.Option {
	var opts []transfer.Option
	if s.ledgers != nil {
		opts = s.ledgers(db)
	}
	if s.stall > 0 {
		opts = append(opts, transfer.WithStallThreshold(0))
	}
	return opts
}

const atOnce = time.Nanosecond // any threshold above 0: see options

func scenarios() []scenario {
	return slices.Concat(
		transferScenarios(), recoveryScenarios(), cancelScenarios(), holdScenarios(), effectScenarios(), reversalScenarios(),
		exchangeScenarios(),
	)
}

func transferring(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
	return c.Transfer(ctx, bank.Move("t", "a", "b", 60))
}

func transferScenarios() []scenario {
	return []scenario{
		{name: "a transfer", balances: []int64{100, 0}, run: transferring},
		{name: "a transfer, answered at the commit", balances: []int64{100, 0}, at: transfer.AtCommit, run: transferring},
		{name: "a transfer, answered at the success", balances: []int64{100, 0}, at: transfer.AtSuccess, run: transferring},
		{name: "a refused transfer", balances: []int64{50, 0}, run: transferring, calm: transfer.ErrInsufficientFunds},
		{name: "a transfer whose fences are known", balances: []int64{100, 0}, warm: warmUp, run: transferring},
		{
			name: "a refused transfer whose fences are known", balances: []int64{60, 0}, warm: warmUp, run: transferring,
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "a transfer whose fences have changed", balances: []int64{100, 0}, run: transferring,
			warm: func(t *testing.T, b *bank.Bank, c *transfer.Coordinator) {
				warmUp(t, b, c)
				b.StallAt("other", bank.Decision, bank.Lost, 1)
				b.RecoverAll() // this replaces the fences
			},
		},
		{name: "an insert whose answer is lost", balances: []int64{100, 0}, also: steps{bank.Claim: bank.AnswerLost}, run: transferring},
		{name: "a record whose answer is lost", balances: []int64{100, 0}, also: steps{bank.Record: bank.AnswerLost}, run: transferring},
		{name: "a pay whose answer is lost", balances: []int64{100, 0}, also: steps{bank.Settles: bank.AnswerLost}, run: transferring},
		{name: "a finish whose answer is lost", balances: []int64{100, 0}, also: steps{bank.Finish: bank.AnswerLost}, run: transferring},
		{name: "a prepare that comes late", balances: []int64{100, 0}, also: steps{bank.Prepares: bank.Held}, run: transferring},
		{
			name: "three accounts, one of them missing", balances: []int64{100, 100}, calm: transfer.ErrAccountNotFound,
			run: func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
				return c.Transfer(ctx, transfer.Request{ID: "t", Legs: []transfer.Leg{
					{Account: "a", Amount: transfer.Units(-60)},
					{Account: "b", Amount: transfer.Units(-10)},
					{Account: "nobody", Amount: transfer.Units(70)},
				}})
			},
		},
		{name: "a transfer that is kept for an hour", balances: []int64{100, 0}, ledgers: keptForAnHour, run: transferring},
		{name: "transfers that share commands", balances: []int64{100, 100}, run: crowding},
		{name: "a transfer between two ledgers", balances: []int64{100, 0}, at: transfer.AtCommit, ledgers: bank.Mirror, run: bank.ThroughMirror},
		{
			name: "a refused transfer between two ledgers", balances: []int64{50, 0}, ledgers: bank.Mirror, run: bank.ThroughMirror,
			calm: transfer.ErrInsufficientFunds,
		},
		{
			name: "a submitted transfer", balances: []int64{100, 0}, run: transferring,
			prepare: func(b *bank.Bank) {
				_, err := b.Submit(b.T.Context(), bank.Move("t", "a", "b", 60))
				require.NoError(b.T, err)
			},
		},
	}
}

// keptForAnHour makes the server remove final transfers.
func keptForAnHour(*mongo.Database) []transfer.Option {
	return []transfer.Option{transfer.WithRetention(time.Hour)}
}

// crowding runs transfer t together with others on the same accounts. One of these is
// refused.
func crowding(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
	records, told := c.TransferMany(ctx, []transfer.Request{
		bank.Move("t", "a", "b", 60), bank.Move("u", "a", "b", 1), bank.Move("v", "b", "a", 2),
		bank.Move("w", "b", "a", 1000), bank.Move("x", "a", "b", 3),
	})
	return records[0], told[0]
}

// warmUp moves a unit there and back, so that the coordinator knows the fences.
func warmUp(t *testing.T, _ *bank.Bank, c *transfer.Coordinator) {
	t.Helper()
	for _, req := range []transfer.Request{bank.Move("there", "a", "b", 10), bank.Move("back", "b", "a", 5)} {
		_, err := c.Transfer(t.Context(), req)
		require.NoError(t, err)
		_, err = c.Wait(t.Context(), req.ID)
		require.NoError(t, err)
	}
}

func recoveryScenarios() []scenario {
	stalled := func(at bank.Step, what bank.Fault) func(b *bank.Bank) {
		return func(b *bank.Bank) { b.StallAt("t", at, what, 60) }
	}
	half := func(b *bank.Bank) { b.StallHalf("t", 60) }
	return []scenario{
		{name: "recovery resumes", balances: []int64{100, 0}, prepare: half, stall: atOnce, run: recovering, policy: transfer.Resume},
		{
			name: "recovery rolls back", balances: []int64{100, 0}, prepare: half, stall: atOnce, run: recovering,
			policy: transfer.RollBack, calm: transfer.ErrCancelled,
		},
		{
			name: "recovery goes by the fact", balances: []int64{100, 0}, prepare: stalled(bank.Decision, bank.Lost), stall: atOnce,
			run: recovering,
		},
		{
			name: "recovery records what is paid", balances: []int64{100, 0}, stall: atOnce, run: recovering,
			prepare: func(b *bank.Bank) { b.LeaveTraces("t", 60, "Preparing", bank.Reserved, bank.Done) },
		},
		{name: "recovery settles", balances: []int64{100, 0}, prepare: stalled(bank.Settles, bank.Lost), stall: atOnce, run: recovering},
		{name: "recovery clears", balances: []int64{100, 0}, prepare: stalled(bank.Clears, bank.Lost), stall: atOnce, run: recovering},
		{
			name: "recovery rolls back what may yet be prepared", balances: []int64{100, 0},
			prepare: stalled(bank.Prepares, bank.Held), stall: atOnce, run: recovering, policy: transfer.RollBack, calm: transfer.ErrCancelled,
		},
		{
			name: "the third executor", balances: []int64{100, 0}, stall: atOnce, run: recovering, policy: transfer.Resume,
			prepare: func(b *bank.Bank) {
				b.StallAt("t", bank.Prepares, bank.Held, 60)
				stallRecovery(b, bank.Prepares, bank.Held)
			},
		},
	}
}

// stallRecovery runs a sweep in a process that dies at a step.
func stallRecovery(b *bank.Bank, at bank.Step, what bank.Fault) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 5*time.Minute)
	defer cancel()
	w := &bank.Wire{Is: at.Selector(), What: what, Die: true, OnDeath: cancel}
	b.Wires = append(b.Wires, w)
	c := b.NewCoordinator(b.Through(w.Client()), transfer.WithStallThreshold(0))
	_, _ = c.Recover(ctx)
	bank.Kill(c)
	require.True(b.T, w.HasStruck(), "%s did not come: %v", at, w.SentSoFar())
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

func cancelScenarios() []scenario {
	cancelling := func(ctx context.Context, c *transfer.Coordinator) (transfer.Record, error) {
		return c.Cancel(ctx, "t", "no longer wanted")
	}
	return []scenario{
		{name: "a cancel", balances: []int64{100, 0}, run: cancelling, prepare: func(b *bank.Bank) { b.StallHalf("t", 60) }},
		{
			name: "a cancel of what is committed by fact", balances: []int64{100, 0}, run: cancelling, calm: transfer.ErrAlreadyCommitted,
			prepare: func(b *bank.Bank) { b.StallAt("t", bank.Decision, bank.Lost, 60) },
		},
		{
			name: "a cancel of what waits", balances: []int64{100, 0}, run: cancelling,
			prepare: func(b *bank.Bank) {
				_, err := b.Submit(b.T.Context(), bank.Move("t", "a", "b", 60))
				require.NoError(b.T, err)
			},
		},
	}
}
