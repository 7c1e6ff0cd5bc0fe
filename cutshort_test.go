package transfer_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// An operator may have the server cut reads short (from 8.0 on by defaultMaxTimeMS, those
// that bring no limit of their own). Then nothing is made up: a transfer is neither done
// nor refused, statements, balances, lists and audits are errors, and not a part for the
// whole; and once reads are let through the same ID is answered.
func TestReadsThatAreCutShort(t *testing.T) {
	t.Parallel()
	const maxTimeExpired = 50
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	uri := options.Client().ApplyURI(server.URI())
	b := &bank{t: t, db: mongotest.Client(t, uri).Database("cut")}
	b.Coordinator = b.coordinator(mongotest.Client(t, uri, options.Client().SetAppName("cut")).Database("cut"))
	require.NoError(t, b.Setup(t.Context()))
	b.open([]int64{100, 0})
	_, err = b.Transfer(t.Context(), move("before", "a", "b", 10))
	require.NoError(t, err)

	b.failing("cut", "alwaysOn", "find", maxTimeExpired)
	fresh := b.coordinator(mongotest.Client(t, uri, options.Client().SetAppName("cut")).Database("cut")) // which knows no account yet
	soon := func() context.Context {                                                                     // it would be tried for half a minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	_, err = fresh.Transfer(soon(), move("t", "a", "b", 10))
	require.Error(t, err)
	var refusal *transfer.RefusedError
	require.NotErrorAs(t, err, &refusal)

	requireLastError(t, b.Statement(soon(), "a", transfer.StatementQuery{}))
	_, err = b.BalanceAt(soon(), "a", time.Now())
	require.Error(t, err)
	requireLastError(t, b.List(soon(), transfer.Query{}))
	_, err = b.Audit(soon())
	require.Error(t, err)

	b.failing("cut", "off", "find", maxTimeExpired)
	_, err = b.Transfer(t.Context(), move("t", "a", "b", 10))
	require.NoError(t, err)
	b.audit(initial(100, 0))
}

// requireLastError requires that a list ends with an error: so it can't be taken for whole.
func requireLastError[T any](t *testing.T, list iter.Seq2[T, error]) {
	t.Helper()
	var last error
	for _, err := range list {
		last = err
	}
	require.Error(t, last)
}
