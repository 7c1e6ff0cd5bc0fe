package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// Who posts a hold that is posted already is told that it has moved, also by a process that
// can't go on with it: whoever is told that nothing was stored would ask for it once more.
func TestPostOfCommittedIsToldSo(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.hold("h", 60, time.Hour)
	b.dying(3, lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "h")
		return err
	})
	c := b.coordinator(b.db, transfer.WithAccounts(b.db.Collection("others")), transfer.WithStallThreshold(0))
	rec, err := c.Post(t.Context(), "h")
	require.Equal(t, transfer.Moved, transfer.OutcomeOf(err), "%v", err)
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.Equal(t, transfer.StateCommitted, rec.State)
	b.recoverAll()
	b.audit(initial(100, 0))
}
