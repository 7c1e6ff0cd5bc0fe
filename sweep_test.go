package transfer

import (
	"context"
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
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, err := NewCoordinator(client.Database("bank"))
	require.NoError(t, err)
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
