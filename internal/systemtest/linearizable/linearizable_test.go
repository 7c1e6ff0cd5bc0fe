package linearizable

import (
	"context"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Transfers and reads of balances and transfers are linearizable on a primary that has
// not been replaced: each takes effect at one moment of its call.
// That of a caller who waits for the commit alone may come after its answer, but then its
// debit is taken, and it never fails.
// This holds whatever happens to messages and processes, and if transfers are taken over
// or cancelled.
// For the posted balance a failed transfer does not exist. From the available balance it
// may take its debit for a while.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	l := newLoad(t, b, loadOptions{
		clients: 8, through: b.Through, faults: []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held},
		enough: func(c counts) bool {
			return c.AtCommit >= 50 && c.AtSettled >= 50 && c.AtSuccess >= 50 && c.Refused >= 30 &&
				c.RolledBack >= 10 && c.InDoubt >= 10 && c.AskedAgain >= 20 &&
				c.Reads >= 300 && c.Reserving >= 20 && c.StateReads >= 100 && c.UnderWay >= 10 &&
				c.Lost >= 10 && c.AnswersLost >= 10 && c.Held >= 10 && c.Deaths >= 4 && c.Sweeps >= 5
		},
	})
	l.run()
	verdicts := l.judge()
	requireLinearizable(t, balanceModel(opening), l.h.posted(verdicts), "posted balances")
	requireLinearizable(t, balanceModel(opening), l.h.available(verdicts), "available balances")
	requireLinearizable(t, stateModel(), l.h.progress(verdicts), "states of transfers")
	requireRejected(t, l.h, verdicts)
	l.audit()
}

// requireRejected requires that forged histories are rejected.
// Without it, accepting the real ones would prove nothing.
func requireRejected(t *testing.T, h *history, verdicts []verdict) {
	t.Helper()
	const forgeries = 5
	for _, l := range []line{h.posted(verdicts), h.available(verdicts)} {
		for n := range forgeries {
			require.False(t, accepts(t, balanceModel(opening), l.without(n)), "a movement is missing")
			forged, found := l.stale(n)
			require.True(t, found)
			require.False(t, accepts(t, balanceModel(opening), forged), "a read is stale")
		}
	}
}

// A transfer that will fail reduces the available balance while it lasts, and others may
// be refused because of it.
// It doesn't change the posted balance.
// The model says so, and a model in which failed transfers do nothing is wrong about the
// available balance.
func TestFailedTransferIsOffTheAvailableBalance(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 100).WithIndexes()
	h := newHistory()
	w := witness{h, 0, b.Coordinator, b.DB, transfer.AtSuccess}
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: closed})
	require.NoError(t, err)
	require.NoError(t, b.CloseAccount(t.Context(), closed))
	ctx, cancel := context.WithCancel(t.Context())
	dying := &bank.Wire{Is: bank.Decision.Selector(), What: bank.Lost, Die: true, OnDeath: cancel} // the debit is taken, and not given back
	dying.SetIdle(true)
	db := b.Through(dying.Client())
	left := witness{h, 1, b.NewCoordinator(db), db, transfer.AtSuccess}
	// From now on it knows the fence of the closed account, and takes the debit before it
	// learns that the account is closed.
	require.ErrorIs(t, left.transfer(ctx, "first", "b", closed, 1).told, transfer.ErrAccountClosed)
	dying.SetIdle(false)
	require.ErrorIs(t, left.transfer(ctx, "t", "a", closed, 60).told, transfer.ErrInDoubt)
	require.NoError(t, w.read(t.Context(), t, "a"))
	require.EqualValues(t, 40, h.balances[0].available)
	require.EqualValues(t, 100, h.balances[0].posted)
	require.ErrorIs(t, w.transfer(t.Context(), "refused", "a", "b", 50).told, transfer.ErrInsufficientFunds)
	b.RecoverAll(transfer.WithStallPolicy(transfer.RollBack))
	require.NoError(t, w.transfer(t.Context(), "possible", "a", "b", 50).told)
	require.NoError(t, w.read(t.Context(), t, "a"))

	verdicts := h.verdicts(t, b.Coordinator)
	requireLinearizable(t, balanceModel(100), h.posted(verdicts), "posted balances")
	requireLinearizable(t, balanceModel(100), h.available(verdicts), "available balances")
	naive := slices.DeleteFunc(h.available(verdicts), func(op porcupine.Operation) bool {
		d := op.Input.(entry).deed
		return d == reserves || d == restores
	})
	require.False(t, accepts(t, balanceModel(100), naive))
	b.CheckBooks(map[string]int64{"a": 100, "b": 100, closed: 0})
}

// The model of an account accepts what may happen, and rejects everything that must not.
func TestHistoryModelOfAccounts(t *testing.T) {
	t.Parallel()
	at := func(called, backAt int64, e entry) porcupine.Operation {
		e.of = "a"
		return porcupine.Operation{Input: e, Call: called, Return: backAt}
	}
	read := func(called, backAt, units int64) porcupine.Operation {
		return at(called, backAt, entry{deed: reads, units: units})
	}
	debit := func(called, backAt, units int64) porcupine.Operation {
		return at(called, backAt, entry{deed: moves, transfer: "t", units: -units})
	}
	failed := func(d deed, called, backAt, units int64) porcupine.Operation {
		return at(called, backAt, entry{deed: d, transfer: "failed", units: units})
	}
	others := func(called, backAt, units int64) porcupine.Operation {
		return at(called, backAt, entry{deed: refuses, transfer: "another", units: units})
	}
	reserved := func(called, backAt, units int64) line {
		return line{failed(reserves, called, backAt, units), failed(restores, called, backAt, units)}
	}
	saw := int64(90)
	for name, test := range map[string]struct {
		line     line
		accepted bool
	}{
		"a read before, one after":               {line{read(0, 1, 100), debit(2, 5, 60), read(6, 7, 40)}, true},
		"reads meanwhile, in order":              {line{debit(2, 9, 60), read(3, 4, 100), read(5, 6, 40)}, true},
		"a movement is lost":                     {line{debit(2, 5, 60), read(6, 7, 100)}, false},
		"it happens twice":                       {line{debit(2, 5, 40), read(6, 7, 20)}, false},
		"it happens before it was asked for":     {line{read(0, 1, 40), debit(2, 5, 60)}, false},
		"a read is stale":                        {line{debit(2, 9, 60), read(3, 4, 40), read(5, 6, 100)}, false},
		"an account is overdrawn":                {line{debit(2, 5, 60), debit(6, 7, 60)}, false},
		"one that fails has taken money":         {append(reserved(2, 9, 60), read(3, 4, 40), read(5, 6, 100)), true},
		"it takes it twice":                      {append(reserved(2, 9, 60), read(3, 4, 40), read(5, 6, 100), read(7, 8, 40)), false},
		"it keeps it":                            {append(reserved(2, 5, 60), read(6, 7, 40)), false},
		"it gives back what it has not taken":    {append(reserved(2, 9, 60), read(3, 4, 160)), false},
		"it takes what is not there":             {append(reserved(2, 9, 160), read(3, 4, -60)), false},
		"refused, and there was too little":      {line{failed(refuses, 2, 5, 101)}, true},
		"refused, and there was enough":          {line{failed(refuses, 2, 5, 100)}, false},
		"refused for what is taken off later":    {line{failed(refuses, 2, 5, 50), debit(6, 7, 60)}, false},
		"refused for what itself has taken":      {append(reserved(2, 9, 60), failed(refuses, 2, 9, 60)), false},
		"refused, and told of another balance":   {line{at(2, 5, entry{deed: refuses, transfer: "failed", units: 200, seen: &saw})}, false},
		"refused for what another one had taken": {append(reserved(2, 9, 60), others(3, 4, 50)), true},
	} {
		require.Equal(t, test.accepted, accepts(t, balanceModel(100), test.line), name)
	}
}

// The model of a transfer accepts a state that goes forward, and nothing else.
func TestHistoryModelOfTransfers(t *testing.T) {
	t.Parallel()
	show := func(called, backAt int64, s transfer.State) porcupine.Operation {
		return porcupine.Operation{Input: entry{deed: shows, of: "t", state: s}, Call: called, Return: backAt}
	}
	promise := func(called, backAt int64) porcupine.Operation {
		return porcupine.Operation{Input: entry{deed: promises, of: "t"}, Call: called, Return: backAt}
	}
	for name, test := range map[string]struct {
		line     line
		accepted bool
	}{
		"forward":             {line{show(0, 1, ""), show(2, 3, transfer.StatePreparing), show(4, 5, transfer.StateSuccess)}, true},
		"both ways":           {line{show(0, 1, transfer.StateSuccess), show(2, 3, transfer.StateFail)}, false},
		"a read is stale":     {line{show(0, 1, transfer.StateSuccess), show(2, 3, "")}, false},
		"back from committed": {line{show(0, 1, transfer.StateCommitted), show(2, 3, transfer.StateRollback)}, false},
		"back from success":   {line{show(0, 1, transfer.StateSuccess), show(2, 3, transfer.StateCommitted)}, false},
		"promised":            {line{promise(0, 1), show(2, 3, transfer.StatePreparing), show(4, 5, transfer.StateSuccess)}, true},
		"promised, and gone":  {line{promise(0, 1), show(2, 3, "")}, false},
		"promised, and back":  {line{promise(0, 1), show(2, 3, transfer.StatePreparing), show(4, 5, transfer.StateRollback)}, false},
		"promised, and fails": {line{promise(0, 1), show(2, 3, transfer.StateFail)}, false},
		"promised too late":   {line{show(0, 1, transfer.StateRollback), promise(2, 3)}, false},
		"meanwhile":           {line{show(0, 5, transfer.StateSuccess), show(1, 2, transfer.StatePreparing)}, true},
	} {
		require.Equal(t, test.accepted, accepts(t, stateModel(), test.line), name)
	}
}
