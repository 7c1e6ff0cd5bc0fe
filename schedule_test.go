package transfer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// later returns a request that no worker runs yet.
func later(id string, units int64) transfer.Request {
	req := move(id, "a", "b", units)
	req.NotBefore = time.Now().Add(time.Hour)
	return req
}

// What waits for its time touches no account. Of two submissions of one ID the first one's time counts; a Transfer runs it at once,
// and a Cancel takes it back.
func TestScheduledTransfers(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	end := inBackground(t, b.Coordinator)
	first, err := b.Submit(t.Context(), later("t", 10))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 100, "b": 0}, b.balances())
	again, err := b.Submit(t.Context(), move("t", "a", "b", 10))
	require.NoError(t, err)
	require.Equal(t, first, again, "the time is not part of the payload")
	_, err = b.Submit(t.Context(), later("t", 11))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	_, err = b.Submit(t.Context(), later("taken back", 10))
	require.NoError(t, err)
	rec, err := b.Cancel(t.Context(), "taken back", "no longer wanted")
	require.NoError(t, err)
	require.Equal(t, transfer.StateFail, rec.State)
	_, err = b.Transfer(t.Context(), move("t", "a", "b", 11))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	rec, err = b.Transfer(t.Context(), move("t", "a", "b", 10))
	require.NoError(t, err)
	require.Equal(t, first.NotBefore, rec.NotBefore)
	again, err = b.Submit(t.Context(), later("t", 10))
	require.NoError(t, err)
	require.Equal(t, rec, again, "it is over")
	for _, past := range []time.Time{time.Now().Add(-time.Hour), time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)} {
		req := move("past "+past.String(), "a", "b", 1)
		req.NotBefore = past
		_, err = b.Submit(t.Context(), req)
		require.NoError(t, err)
		_, err = b.Wait(t.Context(), req.ID)
		require.NoError(t, err)
	}
	end()
	b.audit(initial(100, 0))
}

// The time is stored as it will be read, never earlier than it was asked for, in any zone; what no calendar knows is refused.
func TestTimesOfSchedules(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	whole := time.Date(2100, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	for id, c := range map[string]struct{ asked, stored time.Time }{
		"whole":             {whole, whole},
		"in another zone":   {whole.In(time.FixedZone("far", 5*3600)), whole},
		"a little later":    {whole.Add(1), whole.Add(time.Millisecond)},
		"nearly the next":   {whole.Add(time.Millisecond - 1), whole.Add(time.Millisecond)},
		"long ago":          {time.Date(1900, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(1900, 1, 1, 0, 0, 0, 1_000_000, time.UTC)},
		"the last there is": {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
	} {
		req := move(id, "a", "b", 1)
		req.NotBefore = c.asked
		rec, err := b.Submit(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, c.stored, rec.NotBefore, id)
		read, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, rec, read)
	}
	for _, beyond := range []time.Time{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
		req := move("beyond", "a", "b", 1)
		req.NotBefore = beyond
		_, err := b.Submit(t.Context(), req)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	b.cancelWaiting()
	b.audit(initial(100, 0))
}
