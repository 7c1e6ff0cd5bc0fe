package mongostore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
)

// A server must acknowledge by majority and be of version 5.0 or later.
func TestSupported(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer collections.HelloAnswer
		fine   bool
	}{
		"replica set":      {collections.HelloAnswer{SetName: "rs", MaxWireVersion: 13}, true},
		"mongos":           {collections.HelloAnswer{Message: "isdbgrid", MaxWireVersion: 17}, true},
		"standalone":       {collections.HelloAnswer{MaxWireVersion: 17}, false},
		"not initiated":    {collections.HelloAnswer{Message: "other", MaxWireVersion: 17}, false},
		"old replica set":  {collections.HelloAnswer{SetName: "rs", MaxWireVersion: 12}, false},
		"old mongos":       {collections.HelloAnswer{Message: "isdbgrid", MaxWireVersion: 9}, false},
		"a later, far one": {collections.HelloAnswer{SetName: "rs", MaxWireVersion: 99}, true},
	} {
		if err := row.answer.Supported(); row.fine {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, collections.ErrUnsupported, name)
		}
	}
	answer, err := collections.Hello(t.Context(), newBank(t).Store.Transfers)
	require.NoError(t, err)
	require.NoError(t, answer.Supported())
	assert.False(t, answer.Routed())
	assert.WithinDuration(t, time.Now(), answer.LocalTime, time.Minute)
}

// A transfer is worked on only where each of its collections is registered under the name
// that it stored.
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
