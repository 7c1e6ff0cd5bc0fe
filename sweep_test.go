package transfer

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

// Sweeps that share what they have in hand don't begin with what another one is at: their work on a transfer whose server is away would
// pile up. Once that is done, whoever comes next takes it.
func TestSweepsLeaveAloneWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := unconnected(t)
	foreign := mongostore.Transfer{ID: "t", Legs: []mongostore.Leg{{Ledger: "elsewhere"}}} // which no server is asked about
	foreign.Digest = digest(foreign)
	var hands inHand
	sweep := func() RecoveryReport {
		s := c.newSweep(&hands)
		s.begin(t.Context(), foreign, c.takeOver())
		return s.end()
	}
	require.True(t, hands.reserve("t"))
	require.Zero(t, sweep())
	hands.release("t")
	for range 2 {
		require.Equal(t, RecoveryReport{Found: 1, Stuck: 1}, sweep())
	}
}

// Documents without a readable ID count each, and an error that comes after them ends the search and is told.
func TestSweepTellsOfUnreadableDocuments(t *testing.T) {
	t.Parallel()
	s := unconnected(t).newSweep(&inHand{})
	found := func(yield func(mongostore.Transfer, error) bool) {
		for _, err := range []error{mongostore.ErrUnreadable, mongostore.ErrUnreadable, io.ErrUnexpectedEOF} {
			if !yield(mongostore.Transfer{}, err) {
				return
			}
		}
	}
	require.ErrorIs(t, s.over(t.Context(), found, expire()), io.ErrUnexpectedEOF)
	require.Equal(t, RecoveryReport{Found: 2, Stuck: 2}, s.end())
}

// unconnected returns a coordinator whose server is away.
func unconnected(t *testing.T) *Coordinator {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, err := NewCoordinator(client.Database("bank"))
	require.NoError(t, err)
	return c
}
