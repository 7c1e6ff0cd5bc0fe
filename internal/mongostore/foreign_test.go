package mongostore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
)

// A transfer is worked on only where each of its collections is registered under the name that it stored.
func TestForeignTransfersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	assert.True(t, b.store.HasLedger("eu"))
	assert.False(t, b.store.HasLedger("us"))
	for _, leg := range []document.Leg{
		{Ledger: "us", Namespace: b.db.Name() + ".accounts", Account: "alice"},
		{Ledger: "eu", Namespace: b.db.Name() + ".accounts", Account: "alice"},
		{Ledger: "", Namespace: "other.accounts", Account: "alice"},
		{Account: "alice"},
	} {
		_, err := b.store.NewAttempt(document.Transfer{ID: "order", Legs: []document.Leg{b.leg("bob", 1), leg}}, "me")
		require.ErrorIs(t, err, ErrForeign, "%+v", leg)
	}
}
