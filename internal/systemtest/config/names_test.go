package config

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A name that leaves no room for the note is refused at once.
// It doesn't look like a server that can't be reached.
func TestNameWithoutRoomForTheNote(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	longest := strings.Repeat("x", 255-len(b.DB.Name())-len("."))
	for name, c := range map[string]*transfer.Coordinator{
		"long": b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection(longest))),
		"odd":  b.NewCoordinator(b.DB.Client().Database("$" + b.DB.Name())),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.ErrorIs(t, c.Setup(ctx), transfer.ErrUnsupportedDeployment, name)
		_, err := c.OpenAccount(ctx, transfer.Account{ID: "a"})
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "name")
	}
}
