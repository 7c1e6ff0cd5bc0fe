package rights

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// migrationVerbs set up existing collections, and collections that don't exist yet.
func (v *guarded) migrationVerbs() []verb {
	setup := func(ctx context.Context, c *transfer.Coordinator, _ string) error { return c.Setup(ctx) }
	return []verb{
		{"setup again", setup},
		{"setup", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			require.NoError(v.t, v.root.Drop(ctx))
			return setup(ctx, c, id)
		}},
		{"setup of what is older than the notes", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			for _, notes := range []string{"accounts.transfer", "transfers.transfer"} {
				require.NoError(v.t, v.root.Collection(notes).Drop(ctx))
			}
			return setup(ctx, c, id)
		}},
	}
}
