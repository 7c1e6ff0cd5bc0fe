package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
)

// A transfer is worked on only if each of its collections is registered under its stored
// name.
func TestForeignTransfersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	assert.True(t, b.Store.HasLedger("eu"))
	assert.False(t, b.Store.HasLedger("us"))
	for _, leg := range []document.Leg{
		{Ledger: "us", Namespace: b.DB.Name() + ".accounts", Account: "alice"},
		{Ledger: "eu", Namespace: b.DB.Name() + ".accounts", Account: "alice"},
		{Ledger: "", Namespace: "other.accounts", Account: "alice"},
		{Account: "alice"},
	} {
		_, err := b.Store.NewAttempt(document.Transfer{ID: "order", Legs: []document.Leg{b.Leg("bob", 1), leg}}, "me")
		require.ErrorIs(t, err, mongostore.ErrForeign, "%+v", leg)
	}
}
