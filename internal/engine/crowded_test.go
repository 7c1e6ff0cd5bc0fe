package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// An account that has as many transfers in flight as it may have is rid of those that
// nobody waits for, and no other account is.
func TestCrowdedAccountIsCleared(t *testing.T) {
	e := slowly(t)
	j := committed(t, e, "t", protocol.Settled)
	e.advance(j, e.now())
	observeAll(e, j)
	require.Equal(t, []string{"Clear", "Settle"}, deferredOf(e, "t"))

	next := e.newJob(t.Context(), attemptFor(t, e, "next"), protocol.Start{Claim: protocol.Insert}, protocol.Settled)
	next.waitlist = e.gate.waitlistFor(nil)
	require.NoError(t, e.register("next"))
	e.advance(next, e.now())
	for i := range next.tasks {
		task := &next.tasks[i]
		require.Equal(t, protocol.ReadFence, task.Op.Kind)
		task.Answer = protocol.Answer{Result: protocol.Applied, Facts: protocol.Facts{
			Found: true, Open: true, Unfrozen: true, Currency: true, Kind: true, Funds: true, WithinLimits: true,
			BelowMarkerLimit: task.Op.Participant != 0,
		}}
	}
	e.endRound(next, e.now())
	require.Equal(t, []string{"Clear"}, deferredOf(e, "t"), "the payer is the first participant")
}
