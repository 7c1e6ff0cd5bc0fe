package transfer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// A name that leaves no room for the note is refused at once, and not taken for a server
// that can't be reached.
func TestNameWithoutRoomForTheNote(t *testing.T) {
	t.Parallel()
	b := newBareBank(t)
	longest := strings.Repeat("x", 255-len(b.db.Name())-len("."))
	for name, c := range map[string]*transfer.Coordinator{
		"long": b.coordinator(b.db, transfer.WithAccounts(b.db.Collection(longest))),
		"odd":  b.coordinator(b.db.Client().Database("$" + b.db.Name())),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.ErrorIs(t, c.Setup(ctx), transfer.ErrUnsupportedDeployment, name)
		_, err := c.OpenAccount(ctx, transfer.Account{ID: "a"})
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "name")
	}
}
