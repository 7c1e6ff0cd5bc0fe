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
	ask              // the money that it moves; from the first call that may have stored it to the first definite answer
	recordedBy int64 // when the payer's debit is in flight no longer, at the latest
	paidBy     int64 // when the payee has the money, at the latest
	finalBy    int64 // when nothing is left to be done, at the latest
	final      transfer.State
	owned      bool   // a caller got a definite outcome, or was left in doubt
	reason     string // the failure's code
	seen       *int64 // the balance that a refusal rests on, if an answer named it
}

// until returns the span of the verdict, up to another end.
func (v verdict) until(end int64) span {
	s := v.span
	s.backAt = end
	return s
}

// settledBy narrows the times of a transfer that is settled at a time, or final.
func (v *verdict) settledBy(at int64, final bool) {
	v.backAt, v.recordedBy, v.paidBy = min(v.backAt, at), min(v.recordedBy, at), min(v.paidBy, at)
	if final {
		v.finalBy = min(v.finalBy, at)
	}
}

// verdicts reads the outcome of every request, once everything is final, and requires
// that all answers were true.
// They are the same for all requests with one ID, and agree with what is stored.
// For each stored transfer a caller got an outcome, or was left in doubt.
// A request without an outcome ends when its transfer is first seen final, now at the
// latest.
// What an answer at the commit leaves open ends likewise.
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
			v.called, v.backAt, v.recordedBy, v.paidBy, v.finalBy = over, over, over, over, over
			if rec.Failure != nil {
				v.reason = rec.Failure.Code
			}
			found[a.id] = v
		}
		v.take(t, a)
	}
	for _, r := range h.states {
		if v := found[r.id]; v != nil {
			v.shown(r)
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

// shown narrows the transfer's time by a state that was read.
func (v *verdict) shown(r stateRead) {
	if r.state.Final() {
		v.settledBy(r.backAt, true)
	}
	if r.state == transfer.StateCommitted { // the credit may be on its way
		v.backAt = min(v.backAt, r.backAt)
		if !r.fact {
			v.recordedBy = min(v.recordedBy, r.backAt)
		}
	}
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
		require.Contains(t, a.shows(), a.state, "transfer %s, of which a caller was told %v", a.id, a.told)
		if a.settled() {
			v.settledBy(a.backAt, a.state.Final())
		}
		v.backAt = min(v.backAt, a.backAt) // it is committed, so that the debit is taken; more is not known
	case errors.As(a.told, &refused):
		require.Equal(t, transfer.StateFail, v.final, "transfer %s, of which a caller was told %v", a.id, a.told)
		require.Equal(t, refusals()[v.reason], refused.Err, "transfer %s", a.id)
		v.settledBy(a.backAt, true)
		if refused.Balance != nil {
			seen := bank.Units(t, *refused.Balance)
			v.seen = &seen
		}
	case errors.Is(a.told, transfer.ErrCancelled):
		require.Equal(t, transfer.StateFail, v.final, "transfer %s, of which a caller was told %v", a.id, a.told)
		require.Contains(t, []string{"cancelled", "stalled"}, v.reason, "transfer %s", a.id)
		v.settledBy(a.backAt, true)
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
