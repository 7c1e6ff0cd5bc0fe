package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Every verb says at once that a stored transfer can't be read, because another version
// has written it, or somebody else has.
func TestTransfersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("later", 10)
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Future"}, {Key: "open", Value: true}}}}
	_, err := b.DB.Collection("transfers").UpdateByID(t.Context(), "later", set)
	require.NoError(t, err)
	b.Insert("transfers", bson.M{"_id": "foreign", "x": 1})
	for _, id := range []string{"later", "foreign"} {
		for name, verb := range map[string]func(ctx context.Context) error{
			"get":    func(ctx context.Context) error { _, err := b.Get(ctx, id); return err },
			"wait":   func(ctx context.Context) error { _, err := b.Wait(ctx, id); return err },
			"cancel": func(ctx context.Context) error { _, err := b.Cancel(ctx, id, ""); return err },
			"post":   func(ctx context.Context) error { _, err := b.Post(ctx, id); return err },
			"void":   func(ctx context.Context) error { _, err := b.Void(ctx, id); return err },
			"extend": func(ctx context.Context) error { _, err := b.Extend(ctx, id, time.Hour); return err },
			"reverse": func(ctx context.Context) error {
				_, err := b.Reverse(ctx, transfer.Reversal{ID: "r", Of: id, All: true})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := verb(ctx)
			cancel()
			require.ErrorContains(t, err, "the stored transfer can't be read", "%s %s", name, id)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "%s %s", name, id)
			require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err), "%s %s: %v", name, id, err)
		}
	}
	_, err = b.Get(t.Context(), "r")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	set = bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Success"}, {Key: "open", Value: false}}}}
	_, err = b.DB.Collection("transfers").UpdateByID(t.Context(), "later", set)
	require.NoError(t, err)
	b.Remove("transfers", "foreign")
	b.CheckBooks(bank.Balances(100, 0))
}
