package deployment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// Two notes without an identity do not agree: that the transfers' own was lost is no
// reason to take another collection's accounts for theirs.
func TestLostIdentitiesDoNotAgree(t *testing.T) {
	t.Parallel()
	c := &collections.Collection{Namespace: "bank.accounts"}
	wanted := note{format: document.Format, of: collections.OfAccounts, transfers: "bank.transfers"}
	err := wanted.requireAgreement(wanted, c)
	require.ErrorIs(t, err, collections.ErrUnsupported)
	require.ErrorContains(t, err, "or has lost its note (see WithTransfers)")
	wanted.deployment = "drawn"
	require.NoError(t, wanted.requireAgreement(wanted, c))
}
