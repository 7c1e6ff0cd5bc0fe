package statements

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// told is a statement, read while transfers were in progress.
type told struct {
	entries []transfer.Entry
	done    []string // transfers that had ended before it was read
}

// underLoad runs n transfers by each caller, and reads an account's statement again and
// again until they have ended.
func underLoad(b *bank.Bank, of *transfer.Ledger, account string, n int, callers ...func(id string, n int) error) []told {
	b.T.Helper()
	var (
		mu      sync.Mutex
		done    []string
		failed  error
		running sync.WaitGroup
	)
	for c, transferOne := range callers {
		running.Go(func() {
			for i := range n {
				id := fmt.Sprintf("caller %d, %d", c, i)
				err := transferOne(id, i)
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					done = append(done, id)
				}
				mu.Unlock()
			}
		})
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	var all []told
	for over := false; !over; {
		select {
		case <-ended:
			over = true // once more, when all have ended
		default:
		}
		mu.Lock()
		one := told{done: done[:len(done):len(done)]}
		mu.Unlock()
		one.entries = b.MustStatement(of, account, transfer.StatementQuery{})
		all = append(all, one)
	}
	require.NoError(b.T, failed)
	return all
}

// requireStable requires that each statement has every transfer that had ended before it.
// It also requires that nothing has appeared since between its entries or before them:
// the last statement begins with it. A transfer that was answered at its commit may not
// be recorded yet: only those that are settled have to be there.
func requireStable(b *bank.Bank, all []told, settled func(id string) bool) {
	b.T.Helper()
	final := all[len(all)-1].entries
	for n, one := range all {
		require.LessOrEqual(b.T, len(one.entries), len(final))
		if length := len(one.entries); length > 0 {
			require.Equal(b.T, final[:length], one.entries, "statement %d of %d", n, len(all))
		}
		listed := map[string]bool{}
		for _, e := range one.entries {
			listed[e.TransferID] = true
		}
		for _, id := range one.done {
			require.True(b.T, listed[id] || !settled(id), "transfer %q was over before statement %d of %d", id, n, len(all))
		}
	}
}

// While transfers run on an account, each of its statements is consistent, has every
// transfer that had ended before, and stays true.
func TestStatementUnderLoad(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1_000_000, 1_000_000, 1_000_000).WithIndexes()
	away := b.NewCoordinator(b.DB, transfer.WithReturnAt(transfer.AtCommit)) // settles transfers that have ended for their callers
	callers := make([]func(string, int) error, 16)
	for c := range callers {
		runner := b.Coordinator
		if c%2 == 0 {
			runner = away
		}
		from, to := []string{"a", "b", "c", "a"}[c%4], []string{"b", "a", "a", "c"}[c%4]
		callers[c] = func(id string, i int) error {
			req := bank.Move(id, from, to, int64(2+i))
			if c < 12 {
				_, err := runner.Transfer(t.Context(), req)
				return err
			}
			if _, err := runner.Hold(t.Context(), req, time.Hour); err != nil {
				return err
			}
			_, err := runner.Post(t.Context(), id, transfer.PostAmount(transfer.Units(int64(1+i/2))))
			return err
		}
	}
	all := underLoad(b, b.MustLedger(""), "a", 60, callers...)
	require.Greater(t, len(all), 5)
	requireStable(b, all, func(id string) bool {
		var caller, i int
		_, err := fmt.Sscanf(id, "caller %d, %d", &caller, &i)
		require.NoError(t, err)
		return caller%2 == 1 || caller >= 12 // a hold that is posted is recorded
	})
	require.NoError(t, b.Close(t.Context())) // which sends what is deferred
	b.Coordinator = b.NewCoordinator(b.DB)
	require.NoError(t, away.Close(t.Context()))
	requireStatement(b, "a", replay(b, bank.Balances(1_000_000, 1_000_000, 1_000_000))["a"])
	b.CheckBooks(bank.Balances(1_000_000, 1_000_000, 1_000_000))
}

// The same holds if the account is in another cluster than the transfers, so that no
// snapshot spans both.
func TestStatementUnderLoadOverTwoServers(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.StartServer(t), 1_000_000, 1_000_000)
	other, err := b.Both.Ledger("other")
	require.NoError(t, err)
	callers := make([]func(string, int) error, 8)
	for c := range callers {
		sign := int64(1 - c%2*2)
		callers[c] = func(id string, i int) error {
			_, err := b.Both.Transfer(t.Context(), bank.Across(id, sign*int64(1+i)))
			return err
		}
	}
	all := underLoad(b.Bank, other, "a", 60, callers...)
	require.Greater(t, len(all), 2)
	requireStable(b.Bank, all, func(string) bool { return true })
	entries := all[len(all)-1].entries
	require.Len(t, entries, 8*60)
	account, err := other.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, account.Posted, entries[len(entries)-1].Balance)
	at := entries[len(entries)/2].At
	got, err := other.BalanceAt(t.Context(), "a", at)
	require.NoError(t, err)
	for _, e := range slices.Backward(entries) {
		if !e.At.After(at) {
			require.Equal(t, e.Balance, got)
			break
		}
	}
	here := b.MustStatement(b.MustLedger(""), "a", transfer.StatementQuery{})
	require.Len(t, here, len(entries))
	for i, e := range here {
		require.Equal(t, []any{e.TransferID, e.At, e.Amount}, []any{entries[i].TransferID, entries[i].At, entries[i].Amount.Neg()})
	}
	require.NoError(t, b.Both.Close(t.Context())) // which sends what is deferred
	b.Both = b.NewCoordinator(b.DB, b.Other())
	b.CheckBooks()
}
