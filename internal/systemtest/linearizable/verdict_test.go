package linearizable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// verdict is the common outcome of all requests with one ID.
type verdict struct {
	ask    // the money that it moves; from the first call that may have stored it to the first definite answer
	final  transfer.State
	owned  bool   // a caller got a definite outcome, or was left in doubt
	reason string // the failure's code
	seen   *int64 // the balance that a refusal rests on, if an answer named it
}

// verdicts reads the outcome of every request, once everything is final, and requires
// that all answers were true.
// They are the same for all requests with one ID, and agree with what is stored.
// For each stored transfer a caller got an outcome, or was left in doubt.
// A request without an outcome ends when its transfer is first seen final, now at the
// latest.
// Requests that were never stored are left out.
func (h *history) verdicts(t *testing.T, c *transfer.Coordinator) []verdict {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	over := h.now()
	found := map[string]*verdict{}
	for _, a := range h.asks {
		v := found[a.id]
		if v == nil {
			rec, err := c.Get(t.Context(), a.id)
			if !errors.Is(err, transfer.ErrTransferNotFound) {
				require.NoError(t, err)
				require.True(t, rec.State.Final(), "transfer %s is %s", a.id, rec.State)
			}
			v = &verdict{ask: a, final: rec.State}
			v.called, v.backAt = over, over
			if rec.Failure != nil {
				v.reason = rec.Failure.Code
			}
			found[a.id] = v
		}
		v.take(t, a)
	}
	for _, r := range h.states {
		if v := found[r.id]; v != nil && r.state.Final() {
			v.backAt = min(v.backAt, r.backAt)
		}
	}
	stored := []verdict{}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if v := found[id]; v.final != "" {
			require.True(t, v.owned, "transfer %s is %s, and all who asked for it were told that nothing was stored", id, v.final)
			stored = append(stored, *v)
		}
	}
	return stored
}

// take requires that an answer agrees with what is stored, and narrows the transfer's
// time by it.
func (v *verdict) take(t *testing.T, a ask) {
	t.Helper()
	var refused *transfer.RefusedError
	switch {
	case errors.Is(a.told, transfer.ErrInDoubt):
	case a.told == nil, errors.Is(a.told, transfer.ErrUnsettled):
		require.Equal(t, transfer.StateSuccess, v.final, "transfer %s, of which a caller was told %v", a.id, a.told)
		if a.told != nil {
			break // it is committed; the balances that the caller has seen by then are not known
		}
		v.backAt = min(v.backAt, a.backAt)
	case errors.As(a.told, &refused):
		require.Equal(t, transfer.StateFail, v.final, "transfer %s, of which a caller was told %v", a.id, a.told)
		require.Equal(t, refusals()[v.reason], refused.Err, "transfer %s", a.id)
		v.backAt = min(v.backAt, a.backAt)
		if refused.Balance != nil {
			seen := bank.Units(t, *refused.Balance)
			v.seen = &seen
		}
	case errors.Is(a.told, transfer.ErrCancelled):
		require.Equal(t, transfer.StateFail, v.final, "transfer %s, of which a caller was told %v", a.id, a.told)
		require.Contains(t, []string{"cancelled", "stalled"}, v.reason, "transfer %s", a.id)
		v.backAt = min(v.backAt, a.backAt)
	default: // this call has stored nothing: if something is stored, another caller has done it, and knows
		require.True(t, errors.Is(a.told, context.DeadlineExceeded) || errors.Is(a.told, context.Canceled) ||
			errors.Is(a.told, transfer.ErrClosed), "transfer %s was told %v", a.id, a.told)
		return
	}
	v.owned = true
	v.called = min(v.called, a.called)
}

// refusals are the errors that a run of these clients can meet.
func refusals() map[string]error {
	return map[string]error{
		"insufficientFunds": transfer.ErrInsufficientFunds,
		"accountClosed":     transfer.ErrAccountClosed,
	}
}
