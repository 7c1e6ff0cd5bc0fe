package config

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// warnings collects what is logged at Warn.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) option() transfer.Option {
	return transfer.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

func (w *warnings) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSuffix(w.text.String(), "\n"), "\n")
}

// A process that moves money without some of the indexes says so once, and names all of
// them. So does Check. Setup makes them, and has nothing to say.
func TestMissingIndexesAreNamed(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	for _, name := range []string{"unfinished", "committed", "account"} {
		require.NoError(t, b.DB.Collection("transfers").Indexes().DropOne(t.Context(), name))
	}
	lacks := b.DB.Name() + ".transfers lacks the indexes account, committed, unfinished"
	named := func(line string) string { return strings.NewReplacer(`\"`, "", `"`, "").Replace(line) }

	var log warnings
	c := b.NewCoordinator(b.DB, log.option())
	for _, id := range []string{"one", "two"} {
		_, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 1))
		require.NoError(t, err)
	}
	require.Len(t, log.lines(), 1)
	require.Contains(t, named(log.lines()[0]), lacks)
	require.Contains(t, log.lines()[0], "run Setup once")

	err := c.Check(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.Contains(t, named(err.Error()), lacks)

	var setup warnings
	c = b.NewCoordinator(b.DB, setup.option())
	require.NoError(t, c.Setup(t.Context()))
	_, err = c.Transfer(t.Context(), bank.Move("three", "a", "b", 1))
	require.NoError(t, err)
	require.NoError(t, c.Check(t.Context()))
	c = b.NewCoordinator(b.DB, setup.option())
	_, err = c.Transfer(t.Context(), bank.Move("four", "a", "b", 1))
	require.NoError(t, err)
	require.Equal(t, []string{""}, setup.lines())
	b.CheckBooks(bank.Balances(100, 0))
}

// Where nothing was set up, Check names all that Setup would make. The first use does not
// warn: many tests do without.
func TestSetupThatWasForgottenIsNamed(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	err := b.Check(t.Context())
	for _, part := range []string{
		"there is no collection " + b.DB.Name() + ".transfers", "there is no collection " + b.DB.Name() + ".accounts",
		"lacks the indexes", "unfinished",
	} {
		require.ErrorContains(t, err, part)
	}
	var log warnings
	b.Coordinator = b.NewCoordinator(b.DB, log.option())
	b.OpenAccounts([]int64{1})
	require.Equal(t, []string{""}, log.lines())

	require.NoError(t, b.DB.Collection("accounts.transfer").Drop(t.Context()))
	_, err = b.DB.Collection("transfers.transfer").DeleteMany(t.Context(), bson.M{"_id": bson.M{"$type": "object"}})
	require.NoError(t, err)
	err = b.NewCoordinator(b.DB).Check(t.Context())
	require.ErrorContains(t, err, "has no note of how it is used")
	require.ErrorContains(t, err, "lacks the indexes")
	b.CheckBooks(bank.Balances(1))
}
